//! The plimsoll command.

mod demo;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Trains neural networks with a memory need that is known before the first step.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a small convolutional network on pictures that are drawn for it.
    ///
    /// Shows what a training step takes before it runs, then loss, accuracy and memory per epoch.
    Demo(demo::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(options) => demo::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            exit_code(&error)
        }
    }
}

/// What the exit code says: 3 would not fit (or memory grew up to the limit), 4 a bad file, 5 numbers diverged, 1 anything else.
fn exit_code(error: &plimsoll::Error) -> ExitCode {
    ExitCode::from(match error {
        plimsoll::Error::WouldNotFit(_) | plimsoll::Error::HostTooSmall(_) | plimsoll::Error::MemoryGrew(_) => 3,
        plimsoll::Error::File { .. } => 4,
        plimsoll::Error::Diverged { .. } => 5,
        _ => 1,
    })
}
