//! The brokers as the settings name them.

use super::{Control, Error};
use crate::broker::{Broker, Login, Options, Tls};
use crate::invalid::Invalid;

/// How to reach the brokers; reaches for nothing yet.
pub(super) fn options(control: &Control) -> Result<Options, Error> {
    let settings = &control.settings;
    let brokers = settings.brokers.clone().ok_or(Error::Unset {
        code: "BROKERS_UNSET",
        what: "this needs a broker, and none is set",
        hint: "set FINAZ_BROKERS or brokers in the config file; `make env` prints those of `make up`",
    })?;
    let login = match (&settings.broker_user, &settings.broker_password) {
        (Some(user), Some(password)) => Some(Login {
            mechanism: settings.broker_sasl.to_ascii_uppercase(),
            user: user.clone(),
            password: password.expose().to_owned(),
        }),
        (None, None) => None,
        (Some(_), None) => return Err(half("--broker-password-file", "a user without a password")),
        (None, Some(_)) => return Err(half("--broker-user", "a password without a user")),
    };
    Ok(Options {
        brokers,
        tls: match settings.broker_tls {
            "on" => Tls::On,
            "off" => Tls::Off,
            _ => Tls::Auto,
        },
        login,
        ca: settings.tls_ca.clone(),
        allow_plaintext: settings.allow_plaintext,
        patience: settings.service_timeout,
    })
}

fn half(flag: &'static str, message: &str) -> Error {
    Invalid::new("BROKER_LOGIN_INCOMPLETE", flag, message, format!("give {flag} as well")).into()
}

/// Connects.
pub(super) async fn connect(options: &Options) -> Result<Broker, Error> {
    Ok(Broker::connect(options).await?)
}
