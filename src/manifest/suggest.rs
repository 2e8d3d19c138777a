//! Did you mean …? And how to show a name that may be hostile.

/// The candidate that `name` is most likely a slip of.
fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// A longer name is no slip of a name of ours, and the distance costs the product of lengths.
    const LENGTH_MAX: usize = 100;
    if name.len() > LENGTH_MAX {
        return None;
    }
    let allowed = 1 + name.chars().count() / 4;
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= LENGTH_MAX)
        .map(|candidate| {
            let distance =
                strsim::damerau_levenshtein(&name.to_lowercase(), &candidate.to_lowercase());
            (distance, candidate)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `did you mean `x`?`, or what there is.
#[must_use]
pub fn hint<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
    what: &str,
) -> String {
    if let Some(candidate) = nearest(name, candidates.clone()) {
        return format!("did you mean {}?", shown(candidate));
    }
    let mut names: Vec<String> = candidates.into_iter().take(11).map(shown).collect();
    if names.len() > 10 {
        names[10] = "…".to_owned();
    }
    if names.is_empty() {
        format!("there are no {what}")
    } else {
        format!("{what}: {}", names.join(", "))
    }
}

/// `text` in quotes with escapes, cut to what fits a line of a terminal.
#[must_use]
pub fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(CHARS_MAX).collect();
    let rest = if chars.next().is_some() { "…" } else { "" };
    format!("{head:?}{rest}")
}
