//! The plimsoll command.

mod commands;
mod diagnostic;
mod errors;
mod job;
mod out;
mod panics;
mod progress;
mod schemas;
mod text;

use clap::{Parser, Subcommand};
use diagnostic::Diagnostic;
use out::{Colour, Out};
use std::process::ExitCode;

/// What a command ends with when nothing went wrong: an exit code.
type Outcome = Result<u8, Diagnostic>;

/// Trains neural networks inside a memory limit that you set.
#[derive(Parser)]
#[command(version, propagate_version = true, max_term_width = 100, after_help = AFTER, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    talk: Talk,
}

const AFTER: &str = "\
First steps:
  plimsoll demo                           train inside 256 MiB on data made for it
  plimsoll doctor                         what limits apply on this host
  plimsoll init people.csv                write a job for your own table
  plimsoll plan people.toml               what it takes, byte by byte, before anything runs
  plimsoll train people.toml --memory-limit 512MiB

Exit codes: 0 done, 1 other error, 2 usage, 3 would not fit, 4 bad input file, 5 numbers diverged,
6 disk, 8 checkpoint unusable, 130 and 143 stopped by a signal after saving.";

/// How to be talked to.
#[derive(clap::Args)]
struct Talk {
    /// Give data as JSON on standard output; `plimsoll schema` has the schemas.
    #[arg(long, global = true, help_heading = "Talk")]
    json: bool,
    /// Say nothing but errors.
    #[arg(long, short, global = true, help_heading = "Talk")]
    quiet: bool,
    /// Say more.
    #[arg(long, short, global = true, help_heading = "Talk")]
    verbose: bool,
    /// When to use colours. NO_COLOR, CLICOLOR_FORCE and TERM=dumb count.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", help_heading = "Talk")]
    color: Colour,
}

#[derive(Subcommand)]
enum Command {
    Demo(commands::demo::Options),
    Doctor(commands::doctor::Options),
    Init(commands::init::Options),
    Plan(commands::plan::Options),
    Train(commands::train::Options),
    Eval(commands::eval::Options),
    Predict(commands::predict::Options),
    Run(commands::run::Options),
    Report(commands::pictures::Report),
    Watch(commands::pictures::Watch),
    Serve(commands::pictures::Serve),
    #[command(subcommand)]
    Data(commands::data::Command),
    #[command(subcommand)]
    Ckpt(commands::ckpt::Command),
    Bench(commands::bench::Options),
    #[command(subcommand)]
    Config(commands::config::Command),
    Explain(commands::explain::Options),
    Schema(commands::schema::Options),
    Completions(commands::shell::Completions),
    Man(commands::shell::Man),
    Version(commands::version::Options),
}

fn main() -> ExitCode {
    panics::install();
    let cli = Cli::parse();
    let Talk { json, quiet, verbose, color } = cli.talk;
    let out = Out::new(json, quiet, verbose, color);
    let outcome = match cli.command {
        Command::Demo(options) => commands::demo::run(&options, &out),
        Command::Doctor(options) => commands::doctor::run(&options, &out),
        Command::Init(options) => commands::init::run(&options, &out),
        Command::Plan(options) => commands::plan::run(&options, &out),
        Command::Train(options) => commands::train::run(&options, &out),
        Command::Eval(options) => commands::eval::run(&options, &out),
        Command::Predict(options) => commands::predict::run(&options, &out),
        Command::Run(options) => commands::run::run(&options, &out),
        Command::Report(options) => commands::pictures::report(&options, &out),
        Command::Watch(options) => commands::pictures::watch(&options, &out),
        Command::Serve(options) => commands::pictures::serve(&options, &out),
        Command::Data(command) => commands::data::run(&command, &out),
        Command::Ckpt(command) => commands::ckpt::run(&command, &out),
        Command::Bench(options) => commands::bench::run(&options, &out),
        Command::Config(command) => commands::config::run(&command, &out),
        Command::Explain(options) => commands::explain::run(&options, &out),
        Command::Schema(options) => commands::schema::run(&options, &out),
        Command::Completions(options) => commands::shell::completions(&options, &out),
        Command::Man(options) => commands::shell::man(&options, &out),
        Command::Version(options) => commands::version::run(&options, &out),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            out.error(&error);
            ExitCode::from(error.code.exit())
        }
    }
}
