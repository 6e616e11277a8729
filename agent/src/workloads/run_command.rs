//! `tare-agent run`: run one workload without a host.

use super::{find, ALL};
use crate::contract::{Context, Failure, Sink};
use crate::sys;
use crate::tools::arguments::{cpu_list, text};
use lexopt::prelude::*;
use lexopt::{Error, Parser};
use serde_json::{json, Value as Json};
use std::sync::atomic::AtomicBool;
use std::sync::Mutex;

/// Collects what a workload run by hand reports.
struct Collector {
    directory: Option<String>,
    series: Mutex<Vec<Json>>,
}

impl Sink for Collector {
    fn progress(&self, done: f64, fields: Json) {
        eprintln!("{:5.1} % {fields}", 100.0 * done);
    }

    fn barrier(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn series(&self, name: &str, rows: usize, columns: &[(&str, &str)], data: &[u8]) {
        if let Some(directory) = &self.directory {
            let path = format!("{directory}/{name}.bin");
            if let Err(error) = std::fs::write(&path, data) {
                eprintln!("tare-agent: {path}: {error}");
            }
        }
        let entry = json!({"name": name, "rows": rows, "columns": columns});
        self.series.lock().unwrap().push(entry);
    }
}

/// The arguments of `run`.
struct Arguments {
    name: String,
    params: Json,
    cpus: Vec<usize>,
    directory: Option<String>,
}

fn parse(mut parser: Parser) -> Result<Arguments, Error> {
    let mut params = json!({});
    let (mut name, mut cpus, mut directory) = (None, Vec::new(), None);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("cpus") => cpus = cpu_list(&text(&mut parser)?)?,
            Long("series") => directory = Some(text(&mut parser)?),
            Value(word) if name.is_none() => name = Some(word.string()?),
            Value(word) => {
                params = serde_json::from_str(&word.string()?)
                    .map_err(|error| format!("the parameters are not JSON: {error}"))?;
            }
            Short(_) | Long(_) => return Err(argument.unexpected()),
        }
    }
    Ok(Arguments {
        name: name.ok_or("which workload? name it after run")?,
        params,
        cpus,
        directory,
    })
}

/// Run the workload, and print the result.
pub fn run(parser: Parser) -> Result<(), Error> {
    let arguments = parse(parser)?;
    let run = find(&arguments.name).ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        let (name, known) = (&arguments.name, known.join(", "));
        format!("no workload '{name}'; there are: {known}")
    })?;
    let cpus = &arguments.cpus;
    if !cpus.is_empty() {
        sys::set_affinity(0, cpus).map_err(|error| format!("CPUs {cpus:?}: {error}"))?;
    }
    let collector = Collector {
        directory: arguments.directory,
        series: Mutex::new(Vec::new()),
    };
    let context = Context {
        params: &arguments.params,
        cpus,
        stop: &AtomicBool::new(false),
        sink: &collector,
    };
    let value = run(&context).map_err(|Failure(reason)| reason)?;
    let series = collector.series.into_inner().unwrap_or_default();
    println!("{}", json!({"value": value, "series": series}));
    Ok(())
}
