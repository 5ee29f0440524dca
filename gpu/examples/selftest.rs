// SPDX-License-Identifier: Apache-2.0
//! Checks a device: `selftest --device sim|cuda [--index N] [--only PART] [--list]`.
//!
//! The exit code is 0 if nothing is wrong, 1 if a check failed, 2 if the device cannot be used, 3 if
//! a check hung. On CUDA the gates are checked again in a process with a single hardware queue.

use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use striata_gpu::selftest::{self, Outcome, Progress, Subject, Verdict};
use striata_gpu::sim::{SimConfig, SimDevice};

/// A check that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(180);
#[cfg(feature = "cuda")]
const QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

#[derive(Default)]
struct Arguments {
    device: String,
    index: u32,
    only: Option<String>,
    list: bool,
}

fn main() -> ExitCode {
    match arguments().and_then(|arguments| start(&arguments)) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("selftest: {message}");
            ExitCode::from(2)
        }
    }
}

fn arguments() -> Result<Arguments, String> {
    let mut found = Arguments {
        device: "sim".to_owned(),
        ..Arguments::default()
    };
    let mut list = std::env::args().skip(1);
    while let Some(argument) = list.next() {
        let mut value = || list.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--device" => found.device = value()?,
            "--only" => found.only = Some(value()?),
            "--index" => found.index = value()?.parse().map_err(|_| "--index needs a number")?,
            "--list" => found.list = true,
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(found)
}

fn start(arguments: &Arguments) -> Result<ExitCode, String> {
    match arguments.device.as_str() {
        "sim" => Ok(check(&SimDevice::new(SimConfig::new(0)), arguments)),
        #[cfg(feature = "cuda")]
        "cuda" => start_cuda(arguments),
        other => Err(format!("unknown device {other}: sim or cuda")),
    }
}

#[cfg(feature = "cuda")]
fn start_cuda(arguments: &Arguments) -> Result<ExitCode, String> {
    use striata_gpu::Device;
    use striata_gpu::cuda::{CudaDevice, survey};
    if arguments.list {
        list::<CudaDevice>();
        return Ok(ExitCode::SUCCESS);
    }
    for library in survey().libraries {
        match library.version {
            Ok(version) => println!("{} {version}", library.name),
            Err(error) => println!("{}: {error}", library.name),
        }
    }
    let device = CudaDevice::new(arguments.index).map_err(|error| error.to_string())?;
    println!(
        "{} ({}), copies by {:?}",
        device.describe().name,
        device.architecture(),
        device.copy_calls()
    );
    let code = check(&device, arguments);
    if arguments.only.is_some() || std::env::var_os(QUEUES).is_some() {
        return Ok(code);
    }
    let again = single_queue(arguments)?;
    Ok(if again { code } else { ExitCode::FAILURE })
}

/// Checks the gates in a process whose streams share one hardware queue.
#[cfg(feature = "cuda")]
fn single_queue(arguments: &Arguments) -> Result<bool, String> {
    use std::process::Command;
    println!("again with {QUEUES}=1:");
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let index = arguments.index.to_string();
    let status = Command::new(program)
        .args(["--device", "cuda", "--index", &index, "--only", "gates"])
        .env(QUEUES, "1")
        .status();
    status
        .map(|status| status.success())
        .map_err(|error| error.to_string())
}

fn list<D: Subject>() {
    for check in selftest::checks::<D>() {
        println!("{:36} {}", check.name, check.about);
    }
}

fn check<D: Subject>(device: &D, arguments: &Arguments) -> ExitCode {
    if arguments.list {
        list::<D>();
        return ExitCode::SUCCESS;
    }
    let (tell, told) = mpsc::channel();
    let watchdog = std::thread::spawn(move || watch(&told));
    let outcomes = selftest::run(device, arguments.only.as_deref(), |progress| {
        let name = match progress {
            Progress::Begins(name) => Some(name),
            Progress::Ended(outcome) => {
                print(outcome);
                None
            }
        };
        // The watchdog ends the process or outlives this.
        let _ = tell.send(name);
    });
    drop(tell);
    let watched = watchdog.join().is_ok();
    let count = |wanted: fn(&Verdict) -> bool| {
        outcomes
            .iter()
            .filter(|outcome| wanted(&outcome.verdict))
            .count()
    };
    let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    let skipped = count(|verdict| matches!(verdict, Verdict::Skipped(_)));
    let passed = count(|verdict| matches!(verdict, Verdict::Passed));
    println!("{passed} passed, {skipped} skipped, {failed} failed");
    if failed > 0 || outcomes.is_empty() || !watched {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn print(outcome: &Outcome) {
    let seconds = outcome.took.as_secs_f64();
    match &outcome.verdict {
        Verdict::Passed => println!("ok      {seconds:8.3} s  {}", outcome.name),
        Verdict::Skipped(why) => println!("skipped {seconds:8.3} s  {}: {why}", outcome.name),
        Verdict::Failed(what) => println!("FAILED  {seconds:8.3} s  {}: {what}", outcome.name),
    }
}

/// Ends the process when a check takes too long.
fn watch(told: &mpsc::Receiver<Option<&'static str>>) {
    let mut current = None;
    loop {
        match told.recv_timeout(PATIENCE) {
            Ok(next) => current = next,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                println!(
                    "HUNG    after {PATIENCE:?}  {}",
                    current.unwrap_or("between checks")
                );
                std::process::exit(3);
            }
        }
    }
}
