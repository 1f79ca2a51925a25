//! The page in a real browser: it asks the network for nothing, fits a phone, works by keyboard, and what it says adds up.

mod common;

use common::chromium::Chromium;
use common::{Directory, large_plan, real_run};
use serde_json::json;

const VARIABLE: &str = "PLIMSOLL_TEST_RUN";

/// Trains in a process of its own, so that a limit has nothing of the other tests to carry.
#[test]
fn child() {
    if let Some(directory) = std::env::var_os(VARIABLE) {
        real_run(directory.as_ref());
    }
}

fn make_run(directory: &std::path::Path) {
    let this = std::env::current_exe().unwrap();
    let output = std::process::Command::new(this).args(["--exact", "child"]).env(VARIABLE, directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

const WIDE: (u32, u32) = (1280, 900);
const PHONE: (u32, u32) = (360, 740);

fn write(directory: &Directory, name: &str, page: &str) -> String {
    let path = directory.0.join(name);
    std::fs::write(&path, page).unwrap();
    format!("file://{}", path.display())
}

fn number(text: &serde_json::Value) -> u64 {
    text.as_str().unwrap().replace(',', "").parse().unwrap()
}

#[test]
fn a_run_is_shown() {
    let Some(mut browser) = Chromium::open() else { return };
    let directory = Directory::new("browser-run");
    let run = directory.0.join("small");
    make_run(&run);
    let page = plimsoll_report::html(&run).unwrap();
    assert!(page.len() < 150_000, "{} bytes", page.len());
    let url = write(&directory, "run.html", &page);
    let picture = plimsoll_run::read_plan(run.join(plimsoll_run::PLAN)).unwrap();

    for scheme in ["light", "dark"] {
        for (name, window) in [("wide", WIDE), ("phone", PHONE)] {
            browser.open_page(&url, window, scheme);
            for tab in ["step", "peak", "cost", "training"] {
                browser.eval(&format!("document.getElementById('tab-{tab}').click()"));
                let widths =
                    browser.eval("[document.documentElement.scrollWidth, document.documentElement.clientWidth]");
                assert_eq!(widths[0], widths[1], "{tab} at {} is scrolled sideways", window.0);
                browser.shot(&format!("run-{tab}-{name}-{scheme}"));
            }
            assert_eq!(browser.requests(), Vec::<String>::new());
            assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
        }
    }

    // What the table says adds up to the planned peak, which is the ledger's sum.
    browser.open_page(&url, WIDE, "light");
    let planned: u64 = picture.ledger.iter().filter(|a| !a.name.contains('/')).map(|a| a.held).sum();
    assert_eq!(number(&browser.eval("document.getElementById('peak-sum').textContent")), planned);
    assert_eq!(browser.eval("document.getElementById('peak-sum').dataset.exact"), json!("true"));
    let cells = "[...document.querySelectorAll('#step tbody td:nth-child(2)')].map(c => c.textContent)";
    let cells = browser.eval(cells);
    assert_eq!(cells.as_array().unwrap().iter().map(number).sum::<u64>(), planned);

    // By keyboard: along the step, to the peak, up to a tensor; the table follows and still adds up.
    browser.eval("document.querySelector('.picture').focus()");
    let at = |b: &mut Chromium| {
        b.eval("+document.querySelector('.picture').getAttribute('aria-valuenow')").as_u64().unwrap()
    };
    assert_eq!(at(&mut browser), picture.peak_step + 1);
    for (key, expected) in
        [("Home", 1), ("ArrowRight", 2), ("End", picture.instructions.len() as u64), ("p", picture.peak_step + 1)]
    {
        browser.key(key);
        assert_eq!(at(&mut browser), expected, "after {key}");
        assert_eq!(browser.eval("document.getElementById('peak-sum').dataset.exact"), json!("true"), "after {key}");
    }
    browser.key("ArrowUp");
    let card = browser.eval("document.querySelector('.card').textContent");
    assert!(card.as_str().unwrap().contains("bytes"), "{card}");
    browser.shot("run-selected");
    browser.eval("document.getElementById('tab-step').focus()");
    browser.key("ArrowRight");
    assert_eq!(browser.eval("document.getElementById('peak').hidden"), json!(false));
    browser.key("Home");

    // By pointer: the tensor below it is the one whose bytes are there.
    let place = "(() => { picture.scope = 'arena'; picture.draw(); picture.root.scrollIntoView(); const p = picture.plan; \
        const i = aliveAt(p, p.peak)[0]; const r = picture.canvas.getBoundingClientRect(); \
        return [i, r.left + (picture.X(p.peak) + picture.X(p.peak + 1)) / 2, r.top + picture.Y(p.base + p.offset[i] + p.size[i] / 2)]; })()";
    let place = browser.eval(place);
    browser.click(place[1].as_f64().unwrap(), place[2].as_f64().unwrap());
    assert_eq!(browser.eval("picture.selected"), place[0]);

    // Both switches, and the picture as files.
    for (field, value) in [("y", "stack"), ("x", "time"), ("scope", "process"), ("y", "offset")] {
        browser.eval(&format!("picture.{field} = '{value}'; picture.draw()"));
        browser.shot(&format!("run-{field}-{value}"));
    }
    let svg = browser.eval("picture.svg()");
    let svg = svg.as_str().unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("memory limit") && svg.contains("planned peak"));
    let parses =
        "new DOMParser().parseFromString(picture.svg(), 'image/svg+xml').querySelector('parsererror') === null";
    assert_eq!(browser.eval(parses), json!(true));
    let png = browser.eval("new Promise(done => picture.png(blob => done(blob.size)))");
    assert!(png.as_u64().unwrap() > 5_000);
    accessible(&mut browser);
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
}

/// Rules of accessibility as axe-core knows them, in light and dark and in every tab; said aloud when it is not there.
fn accessible(browser: &mut Chromium) {
    let known = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/axe/node_modules/axe-core/axe.min.js");
    let path = std::env::var("PLIMSOLL_AXE").unwrap_or_else(|_| known.into());
    let Ok(axe) = std::fs::read_to_string(&path) else {
        eprintln!("SKIPPED: no axe-core at {path}; `npm install --prefix target/axe axe-core` brings it");
        return;
    };
    browser.eval(&format!("{axe}; true"));
    for theme in ["light", "dark"] {
        browser.eval(&format!("document.documentElement.dataset.theme = '{theme}'; render(true)"));
        for tab in ["step", "peak", "cost", "training"] {
            browser.eval(&format!("document.getElementById('tab-{tab}').click()"));
            let broken = browser.eval(
                "axe.run().then(r => r.violations.map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html + ' ' + n.failureSummary).join(' | ')))",
            );
            assert_eq!(broken, json!([]), "{tab}, {theme}");
        }
    }
}

#[test]
fn a_plan_alone_is_shown_with_the_same_picture() {
    let Some(mut browser) = Chromium::open() else { return };
    let directory = Directory::new("browser-plan");
    let run = directory.0.join("small");
    make_run(&run);
    let url = write(&directory, "plan.html", &plimsoll_report::html(run.join(plimsoll_run::PLAN)).unwrap());
    browser.open_page(&url, WIDE, "light");
    browser.shot("plan");
    let text = browser.eval("document.getElementById('verdict').textContent");
    assert!(text.as_str().unwrap().starts_with("Fits in"), "{text}");
    let of_plan = browser.eval("picture.svg()");
    let url = write(&directory, "run.html", &plimsoll_report::html(&run).unwrap());
    browser.open_page(&url, WIDE, "light");
    // After the run one line more is drawn: what was measured.
    let without = "picture.measured = () => null; picture.svg()";
    let of_run = browser.eval(without);
    let name = |svg: &serde_json::Value| svg.as_str().unwrap().split("</title>").nth(1).unwrap().to_owned();
    assert_eq!(name(&of_plan), name(&of_run));
}

#[test]
fn a_hundred_thousand_tensors_are_small_and_quick() {
    let Some(mut browser) = Chromium::open() else { return };
    let directory = Directory::new("browser-large");
    let plan = large_plan(100_000);
    let page = plimsoll_report::html_of_plan(&plan, None).unwrap();
    eprintln!("a page of 100,000 tensors: {} bytes", page.len());
    assert!(page.len() <= 2_000_000, "{} bytes", page.len());
    let url = write(&directory, "large.html", &page);
    browser.open_page(&url, WIDE, "light");
    // The browser tells of a paint only once the frame is shown, which can be after the script has drawn.
    let paint = browser.eval(
        "new Promise(done => new PerformanceObserver(list => list.getEntriesByName('first-contentful-paint')
            .forEach(e => done(e.startTime))).observe({type: 'paint', buffered: true}))",
    );
    let drawn =
        browser.eval("(() => { const t = performance.now(); picture.draw(); return performance.now() - t; })()");
    eprintln!("first paint after {paint} ms, drawing takes {drawn} ms");
    // A machine that tests run on has other things to do; the figure to keep is a second.
    assert!(paint.as_f64().unwrap() < 5_000.0 && drawn.as_f64().unwrap() < 5_000.0, "{paint} {drawn}");
    browser.shot("large");
    assert_eq!(browser.eval("document.getElementById('peak-sum').dataset.exact"), json!("true"));
    browser.eval("picture.y = 'stack'; picture.draw()");
    browser.shot("large-stack");
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
}

#[test]
fn a_live_page_follows_the_log() {
    let Some(mut browser) = Chromium::open() else { return };
    let directory = Directory::new("browser-live");
    let run = directory.0.join("small");
    make_run(&run);
    let other = directory.0.join("other");
    std::fs::create_dir_all(&other).unwrap();
    std::fs::copy(run.join(plimsoll_run::LOG), other.join(plimsoll_run::LOG)).unwrap();
    let server = plimsoll_report::serve::Server::bind(std::slice::from_ref(&directory.0), 0).unwrap();
    let url = server.url();
    let own = url.split_once("/?").unwrap().0.to_owned();
    std::thread::spawn(move || server.run());
    browser.open_page(&url, WIDE, "light");
    assert_eq!(browser.eval("document.querySelectorAll('#pick option').length"), json!(2));
    browser.eval("document.getElementById('pick').value = '1'; document.getElementById('pick').dispatchEvent(new Event('change'))");
    browser.eval("document.getElementById('tab-training').click()");
    browser.shot("live-two-runs");
    let mut writer = plimsoll_run::RunWriter::create(&run).unwrap();
    writer.event(plimsoll_run::EventKind::Warning, "told while the page is open").unwrap();
    let begun = std::time::Instant::now();
    while browser.eval("document.body.textContent.includes('told while the page is open')") != json!(true) {
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "the page does not hear of it");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(browser.requests().iter().all(|asked| asked.starts_with(&own)), "{:?}", browser.requests());
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
}
