//! Shows run directories, as the command line does.
//!
//!     cargo run -p plimsoll-report --example view -- html RUN > report.html
//!     cargo run -p plimsoll-report --example view -- watch RUN
//!     cargo run -p plimsoll-report --example view -- serve RUN...

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["html", run] => print!("{}", plimsoll_report::html(run)?),
        ["sweep", run] => {
            let sweep = serde_json::from_slice(&std::fs::read(std::path::Path::new(run).join(plimsoll_run::SWEEP))?)?;
            print!("{}", plimsoll_report::sweep_svg(&sweep));
        }
        ["watch", run] => plimsoll_report::watch::run(run)?,
        ["serve", runs @ ..] if !runs.is_empty() => {
            plimsoll_report::serve::run(&runs.iter().map(Into::into).collect::<Vec<_>>(), 0)?;
        }
        _ => return Err("usage: view html RUN | sweep RUN | watch RUN | serve RUN...".into()),
    }
    Ok(())
}
