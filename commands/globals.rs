//! The global flags, made from the table of settings, and the environment variable of every flag.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use finaz::config::{self, Given, Origin, SETTINGS, Setting, Settings};
use finaz::invalid::Invalid;

/// Gives a command line the global flags and every flag its variable.
pub(crate) fn complete(mut command: Command) -> Command {
    for setting in SETTINGS {
        let arg = arg(setting);
        command = match setting.command {
            None => command.arg(arg.global(true)),
            Some(owner) => command.mut_subcommands(|sub| {
                if sub.get_name() == owner { sub.arg(arg.clone()) } else { sub }
            }),
        };
    }
    with_variables(command)
}

fn arg(setting: &Setting) -> Arg {
    let help = match setting.default {
        Some(default) => format!("{} [default: {default}]", setting.help),
        None => setting.help.to_owned(),
    };
    let arg = Arg::new(setting.key)
        .long(setting.key.replace('_', "-"))
        .help(help)
        .help_heading(setting.heading);
    match setting.value {
        Some(value) => arg.value_name(value).allow_negative_numbers(true),
        None => arg.action(ArgAction::SetTrue),
    }
}

fn with_variables(command: Command) -> Command {
    command.mut_args(with_variable).mut_subcommands(with_variables)
}

fn with_variable(arg: Arg) -> Arg {
    let Some(long) = arg.get_long() else { return arg };
    if arg.get_env().is_some() {
        // It has a name of its own.
        return arg;
    }
    let name = config::variable(long);
    let switch = matches!(arg.get_action(), ArgAction::SetTrue);
    let arg = if switch { arg.value_parser(BoolishValueParser::new()) } else { arg };
    // Values stay out of the help: they may be secret, and the help should be the same everywhere.
    if config::is_empty(&name) { arg } else { arg.env(name).hide_env_values(true) }
}

/// Every variable that a flag of `command` listens to.
pub(crate) fn variables(command: &Command) -> Vec<String> {
    let own = command.get_arguments().filter_map(|arg| match arg.get_env() {
        Some(name) => name.to_str().map(str::to_owned),
        None => arg.get_long().map(config::variable),
    });
    own.chain(command.get_subcommands().flat_map(variables)).collect()
}

/// What was typed, then what it means.
#[derive(Debug)]
pub(crate) struct Globals {
    pub(crate) settings: Settings,
    /// Things an operator should know about the settings.
    pub(crate) warnings: Vec<String>,
    /// The flags that stood on the command line, by id.
    typed: Vec<String>,
}

impl Globals {
    /// Reads the matches of the innermost subcommand, to which clap carries the global flags.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Self, Invalid> {
        let mut innermost = matches;
        while let Some((_, inner)) = innermost.subcommand() {
            innermost = inner;
        }
        let mut given = Given::default();
        for setting in SETTINGS {
            if let Some((value, origin)) = value_of(innermost, setting) {
                given.set(setting.key, value, origin);
            }
        }
        let path = innermost.try_get_one::<PathBuf>("config").ok().flatten();
        let (settings, warnings) = given.resolve(path.map(PathBuf::as_path))?;
        let typed = innermost
            .ids()
            .map(clap::Id::as_str)
            .filter(|id| innermost.value_source(id) == Some(ValueSource::CommandLine))
            .map(str::to_owned)
            .collect();
        Ok(Self { settings, warnings, typed })
    }

    /// Whether this flag stood on the command line (and not just in the environment).
    pub(crate) fn typed(&self, id: &str) -> bool {
        self.typed.iter().any(|typed| typed == id)
    }
}

fn value_of(matches: &ArgMatches, setting: &Setting) -> Option<(String, Origin)> {
    // `batch` is unknown to most commands.
    matches.try_contains_id(setting.key).ok()?;
    let source = matches.value_source(setting.key)?;
    let origin = if source == ValueSource::CommandLine {
        Origin::Flag
    } else if source == ValueSource::EnvVariable {
        Origin::Environment
    } else {
        return None;
    };
    let value = match setting.value {
        Some(_) => matches.get_one::<String>(setting.key)?.clone(),
        None => matches.get_flag(setting.key).to_string(),
    };
    Some((value, origin))
}

/// Whether the caller wants JSON, for an error that comes before the command line is understood.
pub(crate) fn wants_json(argv: &[OsString]) -> bool {
    let flags = argv.iter().take_while(|word| *word != "--");
    config::wants_json() || flags.into_iter().any(|word| word == "--json")
}
