//! From what was given, by whatever way, to [`Settings`] within bounds.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{
    BATCH_MAX, BROKER_SASL, BROKER_TLS, LEASE_TTL_SEC_MAX, LEASE_TTL_SEC_MIN, LOG_FORMATS,
    LOG_LEVELS, OWNER_BYTES_MAX, SERVICE_TIMEOUT_SEC_MAX, SETTINGS, Secret, Settings, WAREHOUSES,
    WORKER_POLL_SEC_MAX, WORKER_POLL_SEC_MIN, environment, file, flag, variable,
};
use crate::invalid::{Invalid, nearest};

/// Which way a value came.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origin {
    Flag,
    Environment,
    /// The place in the config file.
    File(String),
    Default,
}

/// Values of settings as text, each with its origin.
#[derive(Debug, Default)]
pub struct Given(BTreeMap<&'static str, (String, Origin)>);

impl Given {
    /// Takes note of a value from the command line or the environment.
    pub fn set(&mut self, key: &'static str, value: String, origin: Origin) {
        self.0.insert(key, (value, origin));
    }

    /// Fills up from the file and the defaults and checks all of it. Besides the settings come
    /// warnings for the operator.
    ///
    /// # Errors
    /// `Invalid` names the flag, variable or place in the file of the first value that is refused.
    pub fn resolve(mut self, path: Option<&Path>) -> Result<(Settings, Vec<String>), Invalid> {
        self.refuse_typed_secrets()?;
        let mut warnings = Vec::new();
        if let Some(path) = path {
            self.read_file(path, &mut warnings)?;
        }
        for setting in SETTINGS {
            if let Some(default) = setting.default {
                self.0.entry(setting.key).or_insert_with(|| (default.to_owned(), Origin::Default));
            }
        }
        Ok((self.settings(&mut warnings)?, warnings))
    }

    fn refuse_typed_secrets(&self) -> Result<(), Invalid> {
        for key in ["pg_url", "clickhouse_url"] {
            let Some((value, Origin::Flag)) = self.0.get(key) else { continue };
            if Secret::new(value.as_str()).has_password() {
                return Err(Invalid::new(
                    "SECRET_ON_COMMAND_LINE",
                    flag(key),
                    "a password on a command line is seen by every user of the machine",
                    format!(
                        "set {}, put `{key}` into the file of --config, or name a file by {}",
                        variable(key),
                        flag(&key.replace("url", "password_file")),
                    ),
                ));
            }
        }
        Ok(())
    }

    fn read_file(&mut self, path: &Path, warnings: &mut Vec<String>) -> Result<(), Invalid> {
        let (entries, open_to_others) = file::read(path)?;
        for (key, value, line) in entries.0 {
            if open_to_others && Secret::new(value.as_str()).has_password() {
                warnings.push(readable_by_others(path));
            }
            let place = match line {
                Some(line) => format!("{}:{line}: {key}", path.display()),
                None => format!("{}: {key}", path.display()),
            };
            self.0.entry(key).or_insert((value, Origin::File(place)));
        }
        Ok(())
    }

    fn settings(&self, warnings: &mut Vec<String>) -> Result<Settings, Invalid> {
        let batch = self.whole("batch", 1, BATCH_MAX)?;
        let hold = environment::value(environment::DRILL_POINT);
        let hold = hold.map(|wish| wish.to_string_lossy().parse());
        if hold == Some(Err(())) {
            warnings.push(format!("{} means nothing: it is for drills", environment::DRILL_POINT));
        }
        Ok(Settings {
            json: self.switch("json")?,
            quiet: self.switch("quiet")?,
            log_json: self.choice("log_format", LOG_FORMATS)? == "json",
            log_level: self.log_level()?,
            pg_url: self.url("pg_url", &["postgres://", "postgresql://"], warnings)?,
            brokers: self.text("brokers").map(str::to_owned),
            broker_tls: self.choice("broker_tls", BROKER_TLS)?,
            broker_user: self.text("broker_user").map(str::to_owned),
            broker_password: self.password("broker_password_file", warnings)?,
            broker_sasl: self.choice("broker_sasl", BROKER_SASL)?,
            clickhouse_url: self.url("clickhouse_url", &["http://", "https://"], warnings)?,
            warehouse_none: self.choice("warehouse", WAREHOUSES)? == "none",
            tls_ca: self.text("tls_ca").map(PathBuf::from),
            allow_plaintext: self.switch("allow_plaintext")?,
            service_timeout: self.seconds("service_timeout_sec", 0.1, SERVICE_TIMEOUT_SEC_MAX)?,
            artifacts: self
                .text("artifacts")
                .map_or_else(environment::default_artifacts, PathBuf::from),
            owner: self.owner()?,
            lease_ttl: self.seconds("lease_ttl_sec", LEASE_TTL_SEC_MIN, LEASE_TTL_SEC_MAX)?,
            worker_poll: self.seconds(
                "worker_poll_sec",
                WORKER_POLL_SEC_MIN,
                WORKER_POLL_SEC_MAX,
            )?,
            batch: u32::try_from(batch).expect("BATCH_MAX fits"),
            hold: hold.and_then(Result::ok),
        })
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|(value, _)| value.as_str())
    }

    /// The flag, variable or place in the file that a value came from.
    fn place(&self, key: &str) -> String {
        match self.0.get(key).map(|(_, origin)| origin) {
            Some(Origin::Environment) => variable(key),
            Some(Origin::File(place)) => place.clone(),
            Some(Origin::Flag | Origin::Default) | None => flag(key),
        }
    }

    fn invalid(&self, key: &str, message: String, hint: String) -> Invalid {
        Invalid::new("SETTING_INVALID", self.place(key), message, hint)
    }

    fn switch(&self, key: &str) -> Result<bool, Invalid> {
        let Some(text) = self.text(key) else { return Ok(false) };
        truth(text).ok_or_else(|| {
            self.invalid(key, format!("`{text}` is neither true nor false"), "write true".into())
        })
    }

    fn choice(&self, key: &str, choices: &[&'static str]) -> Result<&'static str, Invalid> {
        let text = self.text(key).unwrap_or_default();
        choices.iter().find(|choice| **choice == text).copied().ok_or_else(|| {
            let hint = match nearest(text, choices.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("one of {}", choices.join(", ")),
            };
            self.invalid(key, format!("`{text}` is none of {}", choices.join(", ")), hint)
        })
    }

    /// `None` unless somebody chose: a daemon logs more than a one-shot command by default.
    fn log_level(&self) -> Result<Option<String>, Invalid> {
        let chosen = self.text("log_level").is_some();
        chosen.then(|| self.choice("log_level", LOG_LEVELS).map(str::to_owned)).transpose()
    }

    fn seconds(&self, key: &str, least: f64, most: f64) -> Result<Duration, Invalid> {
        seconds(&self.place(key), self.text(key).unwrap_or_default(), least, most)
    }

    fn whole(&self, key: &str, least: u64, most: u64) -> Result<u64, Invalid> {
        let text = self.text(key).unwrap_or_default();
        match text.parse::<u64>() {
            Ok(value) if (least..=most).contains(&value) => Ok(value),
            Ok(_) => Err(out_of_bounds(&self.place(key), text, &least, &most)),
            // Digits only, so it is too large for any bound.
            Err(_)
                if text.strip_prefix('-').unwrap_or(text).bytes().all(|b| b.is_ascii_digit()) =>
            {
                Err(out_of_bounds(&self.place(key), text, &least, &most))
            }
            Err(_) => Err(self.invalid(
                key,
                format!("`{text}` is no whole number"),
                format!("a whole number from {least} to {most}"),
            )),
        }
    }

    fn owner(&self) -> Result<String, Invalid> {
        let Some(owner) = self.text("owner") else { return Ok(environment::machine_name()) };
        if owner.is_empty()
            || owner.len() > OWNER_BYTES_MAX
            || owner.chars().any(|c| c.is_control() || c.is_whitespace())
        {
            return Err(self.invalid(
                "owner",
                "not the name of an owner".to_owned(),
                format!("1 to {OWNER_BYTES_MAX} bytes without blanks and control characters"),
            ));
        }
        Ok(owner.to_owned())
    }

    /// A URL with its password from wherever it may come. Its text is in no message.
    fn url(
        &self,
        key: &str,
        schemes: &[&str],
        warnings: &mut Vec<String>,
    ) -> Result<Option<Secret>, Invalid> {
        let Some(url) = self.text(key) else { return Ok(None) };
        if url.contains("://") && !schemes.iter().any(|scheme| url.starts_with(scheme)) {
            return Err(self.invalid(
                key,
                "a URL of another kind of service".to_owned(),
                format!("it starts with {}", schemes.join(" or ")),
            ));
        }
        if !url.contains("://") && (schemes[0].starts_with("http") || !url.contains('=')) {
            return Err(self.invalid(
                key,
                "not a URL".to_owned(),
                format!("it starts with {}", schemes.join(" or ")),
            ));
        }
        let password = self.password(&key.replace("url", "password_file"), warnings)?;
        Ok(Some(password.map_or_else(
            || Secret::new(url),
            |password| Secret::new(with_password(url, password.expose())),
        )))
    }

    /// What a file of a password holds, if one is named.
    fn password(&self, key: &str, warnings: &mut Vec<String>) -> Result<Option<Secret>, Invalid> {
        let Some(path) = self.text(key).map(PathBuf::from) else { return Ok(None) };
        let (text, open_to_others) = file::read_text(&path)?;
        if open_to_others {
            warnings.push(readable_by_others(&path));
        }
        Ok(Some(Secret::new(text.trim_end_matches(['\n', '\r']))))
    }
}

/// A time in seconds, fractions allowed, within bounds; `place` is where the text was given.
///
/// # Errors
/// `SETTING_INVALID` or `SETTING_OUT_OF_BOUNDS`, with the bounds.
pub fn seconds(place: &str, text: &str, least: f64, most: f64) -> Result<Duration, Invalid> {
    let value = text.parse::<f64>().map_err(|_| {
        Invalid::new(
            "SETTING_INVALID",
            place,
            format!("`{text}` is no number of seconds"),
            format!("a number from {least} to {most}, fractions allowed"),
        )
    })?;
    if !(least..=most).contains(&value) {
        return Err(out_of_bounds(place, text, &least, &most));
    }
    Ok(Duration::from_secs_f64(value))
}

/// The time that a lease is to live, as a flag of its own gives it.
///
/// # Errors
/// As [`seconds`].
pub fn lease_ttl(place: &str, text: &str) -> Result<Duration, Invalid> {
    seconds(place, text, LEASE_TTL_SEC_MIN, LEASE_TTL_SEC_MAX)
}

fn out_of_bounds(place: &str, text: &str, least: &dyn Display, most: &dyn Display) -> Invalid {
    Invalid::new(
        "SETTING_OUT_OF_BOUNDS",
        place,
        format!("{text} is outside {least} to {most}"),
        format!("a number from {least} to {most}"),
    )
}

fn readable_by_others(path: &Path) -> String {
    format!("{} holds a password and others can read it; chmod 600", path.display())
}

/// Adds a password: PostgreSQL takes it as a parameter, HTTP before the `@`.
fn with_password(url: &str, password: &str) -> String {
    let encoded = percent_encoded(password);
    match url.split_once("://") {
        None => format!("{url} password='{}'", password.replace('\\', "\\\\").replace('\'', "\\'")),
        Some((scheme, rest)) if scheme.starts_with("http") => match rest.split_once('@') {
            Some((user, rest)) => format!("{scheme}://{user}:{encoded}@{rest}"),
            None => format!("{scheme}://default:{encoded}@{rest}"),
        },
        Some(_) if url.contains('?') => format!("{url}&password={encoded}"),
        Some(_) => format!("{url}?password={encoded}"),
    }
}

fn percent_encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a String takes all");
        }
    }
    out
}

/// The words that switch a switch.
pub(super) fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn given(entries: &[(&'static str, &str, Origin)]) -> Given {
        let mut given = Given::default();
        for (key, value, origin) in entries {
            given.set(key, (*value).to_owned(), origin.clone());
        }
        given
    }

    fn refusal(key: &'static str, value: &str) -> Invalid {
        given(&[(key, value, Origin::Flag)]).resolve(None).expect_err("it is refused")
    }

    /// A config file of its own for each test.
    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn flag_and_environment_beat_the_file_and_the_file_beats_the_default() {
        let file = file("owner: from-file\nlease_ttl_sec: 7.5\n");
        let given = given(&[("owner", "typed", Origin::Environment)]);
        let (settings, _) = given.resolve(Some(file.path())).unwrap();
        assert_eq!(settings.owner, "typed");
        assert_eq!(settings.lease_ttl, Duration::from_millis(7500));
        assert_eq!(settings.worker_poll, Duration::from_secs(1));
    }

    #[test]
    fn a_number_out_of_bounds_is_refused_with_the_bounds() {
        for (key, value) in [
            ("lease_ttl_sec", "0"),
            ("lease_ttl_sec", "-1"),
            ("lease_ttl_sec", "86401"),
            ("lease_ttl_sec", "NaN"),
            ("lease_ttl_sec", "inf"),
            ("batch", "0"),
            ("batch", "-3"),
            ("batch", "100000000000"),
            ("batch", "100000000000000000000000"),
        ] {
            let refused = refusal(key, value);
            assert_eq!(refused.code, "SETTING_OUT_OF_BOUNDS", "{key} {value}");
            assert_eq!(refused.place, flag(key));
            assert!(refused.hint.contains(" to "), "{}", refused.hint);
        }
        assert_eq!(refusal("batch", "100GB").code, "SETTING_INVALID");
        assert_eq!(refusal("lease_ttl_sec", "soon").code, "SETTING_INVALID");
    }

    #[test]
    fn every_default_is_within_its_own_bounds() {
        Given::default().resolve(None).unwrap();
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_place_and_the_key_that_was_meant() {
        let file = file("owner: a\npg-url: postgres://u:hunter2@h/db\n");
        let refused = Given::default().resolve(Some(file.path())).unwrap_err();
        assert_eq!(refused.code, "CONFIG_UNKNOWN_KEY");
        assert_eq!(refused.message, "unknown key `pg-url`, did you mean `pg_url`?");
        assert_eq!(refused.place, format!("{}:2:1", file.path().display()));
    }

    #[test]
    fn a_file_that_is_no_flat_mapping_is_refused() {
        for text in ["- a\n", "owner: [a]\n", "owner: a\nowner: b\n", "owner: {a: b}\n", "{", "a"] {
            let file = file(text);
            let refused = Given::default().resolve(Some(file.path())).unwrap_err();
            assert_eq!(refused.code, "CONFIG_INVALID", "{text}");
        }
        for text in ["", "# nothing\n", "---\n", "owner:\n"] {
            Given::default().resolve(Some(file(text).path())).unwrap();
        }
    }

    #[test]
    fn a_bad_value_of_the_file_is_placed_on_its_line() {
        let file = file("# mine\nlease_ttl_sec: 0\n");
        let refused = Given::default().resolve(Some(file.path())).unwrap_err();
        assert_eq!(refused.place, format!("{}:2: lease_ttl_sec", file.path().display()));
    }

    #[test]
    fn a_typed_password_is_refused_and_one_of_the_environment_is_not() {
        let url = "postgres://u:hunter2@h/db";
        let refused = refusal("pg_url", url);
        assert_eq!(refused.code, "SECRET_ON_COMMAND_LINE");
        assert!(!format!("{refused:?}").contains("hunter2"));
        let given = given(&[("pg_url", url, Origin::Environment)]);
        let (settings, _) = given.resolve(None).unwrap();
        assert_eq!(settings.pg_url.as_ref().map(Secret::expose), Some(url));
        assert!(!format!("{settings:?}").contains("hunter2"));
    }

    #[test]
    fn a_url_of_another_service_is_refused_without_being_shown() {
        for (key, url) in [
            ("pg_url", "http://u@hunter2"),
            ("pg_url", "hunter2"),
            ("clickhouse_url", "postgres://hunter2"),
            ("clickhouse_url", "hunter2:8123"),
        ] {
            assert!(!format!("{:?}", refusal(key, url)).contains("hunter2"), "{key} {url}");
        }
    }

    #[test]
    fn a_password_file_that_others_can_read_is_warned_about_and_used() {
        let file = file("p@ss w\n");
        let path = file.path().display().to_string();
        let with = |url: &str, key: &'static str, password_key: &'static str| {
            let given =
                given(&[(key, url, Origin::Flag), (password_key, &path, Origin::Environment)]);
            let (settings, warnings) = given.resolve(None).unwrap();
            let url = if key == "pg_url" { settings.pg_url } else { settings.clickhouse_url };
            (url.unwrap().expose().to_owned(), warnings.len())
        };
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644)).unwrap();
        let pg = |url| with(url, "pg_url", "pg_password_file");
        assert_eq!(pg("postgres://u@h/d"), ("postgres://u@h/d?password=p%40ss%20w".into(), 1));
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(pg("postgres://h/d?a=b"), ("postgres://h/d?a=b&password=p%40ss%20w".into(), 0));
        assert_eq!(pg("host=h user=u"), ("host=h user=u password='p@ss w'".into(), 0));
        let http = |url| with(url, "clickhouse_url", "clickhouse_password_file").0;
        assert_eq!(http("http://u@h:1/d"), "http://u:p%40ss%20w@h:1/d");
        assert_eq!(http("http://h:1"), "http://default:p%40ss%20w@h:1");
    }
}
