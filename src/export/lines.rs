//! CSV and JSON lines.

use std::io::{self, BufWriter, Write};

use super::{Series, finite};
use crate::canonical::{write_f64, write_text};

const BUFFER_BYTES: usize = 256 * 1024;

/// `series` come with the number of their first row.
pub(super) fn csv<'a>(
    series: impl Iterator<Item = (u64, Series<'a>)>,
    out: impl Write,
) -> io::Result<()> {
    let mut csv = csv::WriterBuilder::new().buffer_capacity(BUFFER_BYTES).from_writer(out);
    csv.write_record(["instrument", "node", "seq", "event_time", "value"])?;
    let (mut seq, mut time, mut value) = (Vec::new(), Vec::new(), Vec::new());
    for (first, Series { instrument, node, event_time, values }) in series {
        for (number, (event_time, &x)) in (first..).zip(event_time.iter().zip(values)) {
            value.clear();
            if let Some(x) = finite(x)? {
                write_f64(x, &mut value);
            }
            csv.write_record([
                instrument.as_bytes(),
                node.as_bytes(),
                decimal(&mut seq, number)?,
                decimal(&mut time, event_time)?,
                &value,
            ])?;
        }
    }
    csv.flush()
}

fn decimal(buffer: &mut Vec<u8>, number: impl std::fmt::Display) -> io::Result<&[u8]> {
    buffer.clear();
    write!(buffer, "{number}")?;
    Ok(buffer)
}

/// `series` come with the number of their first row.
pub(super) fn json<'a>(
    series: impl Iterator<Item = (u64, Series<'a>)>,
    out: impl Write,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let (mut names, mut line) = (Vec::new(), Vec::new());
    for (first, Series { instrument, node, event_time, values }) in series {
        names.clear();
        names.extend_from_slice(b",\"instrument\":");
        write_text(instrument, &mut names);
        names.extend_from_slice(b",\"node\":");
        write_text(node, &mut names);
        for (number, (event_time, &x)) in (first..).zip(event_time.iter().zip(values)) {
            line.clear();
            write!(line, "{{\"event_time\":{event_time}")?;
            line.extend_from_slice(&names);
            write!(line, ",\"seq\":{number},\"value\":")?;
            match finite(x)? {
                Some(x) => write_f64(x, &mut line),
                None => line.extend_from_slice(b"null"),
            }
            line.extend_from_slice(b"}\n");
            out.write_all(&line)?;
        }
    }
    out.flush()
}
