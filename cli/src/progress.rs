// SPDX-License-Identifier: Apache-2.0
//! Progress on standard error: a bar on a terminal, lines where they are asked for, else nothing.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::ProgressStyle;
use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState};

use crate::args::ProgressArgs;

/// Between two lines, where progress is lines.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Progress of one run.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    mode: Mode,
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Bar,
    Lines { last: Instant },
    Nothing,
}

impl Progress {
    /// Shows nothing yet.
    pub(crate) fn new(args: ProgressArgs) -> Self {
        let mode = if args.quiet || args.no_progress {
            Mode::Nothing
        } else if std::io::stderr().is_terminal() {
            Mode::Bar
        } else if args.progress {
            Mode::Lines {
                last: Instant::now(),
            }
        } else {
            Mode::Nothing
        };
        Self {
            bar: ProgressBar::hidden(),
            mode,
            quiet: args.quiet,
        }
    }

    /// Begins a run of `total` steps called `what`.
    pub(crate) fn start(&mut self, what: &str, total: Option<u64>) {
        let target = match self.mode {
            Mode::Bar => ProgressDrawTarget::stderr(),
            Mode::Lines { .. } | Mode::Nothing => ProgressDrawTarget::hidden(),
        };
        self.bar = ProgressBar::with_draw_target(total, target)
            .with_style(style(total.is_some()))
            .with_message(what.to_owned());
    }

    /// Names what is done now, beside a bar.
    pub(crate) fn now(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// `done` steps have ended.
    pub(crate) fn at(&mut self, done: u64) {
        self.bar.set_position(done);
        if let Mode::Lines { last } = &mut self.mode
            && last.elapsed() >= LINE_EVERY
        {
            *last = Instant::now();
            crate::error::complain(&line(&self.bar));
        }
    }

    /// Takes the bar away; lines end with a last one.
    ///
    /// Then says `notes`: only now, so that a refused trace says its one line and nothing else.
    pub(crate) fn finish(&mut self, notes: &[&str]) {
        if matches!(self.mode, Mode::Lines { .. }) {
            crate::error::complain(&line(&self.bar));
        }
        self.bar.finish_and_clear();
        if !self.quiet {
            for note in notes {
                crate::error::complain(&format!("note: {note}"));
            }
        }
    }
}

fn style(sized: bool) -> ProgressStyle {
    let template = if sized {
        "{msg} {wide_bar} {human_pos}/{human_len} {rate} ETA {eta}"
    } else {
        "{msg} {spinner} {human_pos} {rate} {elapsed}"
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
        .with_key(
            "rate",
            |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                // A bar that cannot be written to has nobody to tell.
                let _ = write!(out, "{:.0}/s", state.per_sec());
            },
        )
}

fn line(bar: &ProgressBar) -> String {
    let mut text = format!("{}: {}", bar.message(), HumanCount(bar.position()));
    if let Some(total) = bar.length() {
        let _ = write!(text, "/{}", HumanCount(total));
    }
    let _ = write!(text, ", {:.0}/s", bar.per_sec());
    if bar.length().is_some_and(|total| total > bar.position()) {
        let _ = write!(text, ", ETA {}", HumanDuration(bar.eta()));
    }
    text
}
