//! Why a broker did not do what it was asked: what waiting heals, what only the operator can, told apart.

use krafka::KrafkaError;
use krafka::error::ErrorCode;

use crate::invalid::Invalid;

/// What a broker, or the way to it, has against a request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A name or an address that cannot be one, or a topic that is not there.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Nobody answers, or not in time; the last cause is kept.
    #[error("no broker answers at {place}: {why}")]
    Away { place: String, why: String },
    /// User, password or mechanism.
    #[error("the broker at {place} refuses the login: {why}")]
    Login { place: String, why: String },
    /// Its certificate, or the authority behind it.
    #[error("the broker at {place} is not to be trusted: {why}")]
    Untrusted { place: String, why: String },
    #[error("the broker at {place} speaks TLS, and was spoken to without")]
    SpeaksTls { place: String },
    #[error("the broker at {place} speaks without TLS, and TLS was wanted")]
    SpeaksPlaintext { place: String },
    /// It wants a user and was told none.
    #[error("the broker at {place} wants a login")]
    WantsLogin { place: String },
    /// The user may not do this.
    #[error("the broker at {place} denies it: {why}")]
    Denied { place: String, why: String },
    /// A record is longer than the topic allows.
    #[error("the broker at {place} takes no record that long")]
    TooLarge { place: String },
    /// An answer that no waiting changes.
    #[error("the broker at {place} refuses: {why}")]
    Refused { place: String, why: String },
}

impl Error {
    /// Stable, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::Away { .. } => "BROKER_AWAY",
            Self::Login { .. } => "BROKER_LOGIN",
            Self::Untrusted { .. } => "BROKER_UNTRUSTED",
            Self::SpeaksTls { .. } => "BROKER_SPEAKS_TLS",
            Self::SpeaksPlaintext { .. } => "BROKER_SPEAKS_PLAINTEXT",
            Self::WantsLogin { .. } => "BROKER_WANTS_LOGIN",
            Self::Denied { .. } => "BROKER_DENIED",
            Self::TooLarge { .. } => "BROKER_RECORD_TOO_LARGE",
            Self::Refused { .. } => "BROKER_REFUSED",
        }
    }

    /// Whether waiting may heal it.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Away { .. })
    }

    /// What `krafka` says, as one of ours.
    pub(super) fn of(error: &KrafkaError, place: &str) -> Self {
        let (place, why) = (place.to_owned(), chain(error));
        if let KrafkaError::Auth { .. } = error {
            let says = why.to_ascii_lowercase();
            // One variant for both; the words of rustls tell them apart.
            let tls = ["certificate", "tls", "issuer"].iter().any(|word| says.contains(word));
            return if tls { Self::Untrusted { place, why } } else { Self::Login { place, why } };
        }
        let denied = [
            ErrorCode::TopicAuthorizationFailed,
            ErrorCode::ClusterAuthorizationFailed,
            ErrorCode::GroupAuthorizationFailed,
        ];
        if matches!(error, KrafkaError::Broker { code, .. } if denied.contains(code)) {
            return Self::Denied { place, why };
        }
        if error.is_retriable() || matches!(error, KrafkaError::Timeout { .. }) {
            return Self::Away { place, why };
        }
        Self::Refused { place, why }
    }
}

/// An error with its causes, each said once.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !said.contains(&words) {
            said.push_str(": ");
            said.push_str(&words);
        }
        next = cause.source();
    }
    said
}
