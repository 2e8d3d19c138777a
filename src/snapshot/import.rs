//! The import: a source read once, or twice where its order asks for it, into one blob and a name.

use std::path::Path;

use super::event::{Sink, Stop};
use super::order::Intake;
use super::settings::Settings;
use super::source::{Progress, Source};
use super::{Error, Format, ImportOptions, Imported, columnar, jsonl, table};
use crate::artifacts::{self, Artifacts, Kind, Label};
use crate::invalid::Invalid;

/// Imports a file as a snapshot and gives it its name. `progress` is told the bytes of the file that
/// were read, and their sum; a source that has to be sorted on the disk is read twice.
///
/// # Errors
/// Input that cannot be read as asked ([`Error::Invalid`], with `file:line`), a name that is taken,
/// or what the disk said. Nothing is left behind then: no blob, no name, no temporary file.
pub fn import(
    artifacts: &Artifacts,
    file: &Path,
    options: &ImportOptions,
    progress: &dyn Fn(u64, u64),
) -> Result<Imported, Error> {
    options.name.as_deref().map(artifacts::check_name).transpose()?;
    let source = Source::open(file, options.format)?;
    let settings = Settings::new(options, source.format)?;
    let mut intake = Intake::new(artifacts, &source, &settings, false)?;
    match read(&source, &settings, progress, &mut |event| intake.event(event)) {
        Err(Stop::Unordered) => {
            // Gone before the second pass needs its room on the disk.
            drop(intake);
            intake = Intake::new(artifacts, &source, &settings, true)?;
            ended(read(&source, &settings, progress, &mut |event| intake.event(event)))?;
        }
        first => ended(first)?,
    }
    let ids = std::mem::take(&mut intake.ids);
    if let Some((line, first)) = ids.duplicate(artifacts)? {
        return Err(duplicate(&source, &settings, line, first)?);
    }
    let instruments = u64::try_from(intake.instruments.len()).expect("a length fits 64 bits");
    let (body, events) = intake.finish(&|| progress(source.size, source.size))?;
    let label = Label { hash: body.hash(), golden: None };
    if let Some(name) = &options.name {
        let held = artifacts.label(Kind::Snapshot, name)?;
        if let Some(held) = held.filter(|held| held.hash != label.hash && !options.replace) {
            let (held, offered) = (Box::new(held), Box::new(label));
            return Err(artifacts::Error::LabelTaken { name: name.clone(), held, offered }.into());
        }
    }
    let (snapshot, already_present) = body.finish()?;
    if let Some(name) = &options.name {
        artifacts.set_label(Kind::Snapshot, name, &label, options.replace)?;
    }
    Ok(Imported { snapshot, name: options.name.clone(), events, instruments, already_present })
}

fn read(
    source: &Source,
    settings: &Settings,
    progress: Progress<'_>,
    sink: Sink<'_>,
) -> Result<(), Stop> {
    match source.format {
        Format::Csv => table::read(source, settings, progress, sink),
        Format::JsonLines => jsonl::read(source, settings, progress, sink),
        Format::Parquet => columnar::read(source, settings, progress, sink),
    }
}

fn ended(read: Result<(), Stop>) -> Result<(), Error> {
    match read {
        Ok(()) => Ok(()),
        Err(Stop::Failed(error)) => Err(error),
        Err(Stop::Unordered | Stop::Found(_)) => {
            unreachable!("a pass that sorts takes any order, and nothing is looked for")
        }
    }
}

/// The refusal of an id that two lines have. Ids are not kept, so it is read again.
fn duplicate(source: &Source, settings: &Settings, line: u64, first: u64) -> Result<Error, Error> {
    let found = read(source, settings, &|_, _| {}, &mut |event| {
        if event.line < line {
            return Ok(());
        }
        Err(Stop::Found(event.event_id.unwrap_or_default().to_owned()))
    });
    let id = match found {
        Err(Stop::Found(id)) => id,
        Err(Stop::Failed(error)) => return Err(error),
        Ok(()) | Err(Stop::Unordered) => String::new(),
    };
    let message = format!("the event id {} is on line {first} already", super::cell::shown(&id));
    let hint = "ids must differ within a snapshot; without --event-id-column they are made";
    Ok(Invalid::new("EVENT_ID_DUPLICATE", source.at(line), message, hint).into())
}
