//! The page in a real browser: it asks the network for nothing, fits a phone, works by keyboard, and what it says adds up.

mod common;

use common::chromium::Chromium;
use common::{Directory, large_plan, real_run};
use serde_json::json;

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
    real_run(&run);
    let page = plimsoll_report::html(&run).unwrap();
    assert!(page.len() < 150_000, "{} bytes", page.len());
    let url = write(&directory, "run.html", &page);
    let picture = plimsoll_run::read_plan(run.join(plimsoll_run::PLAN)).unwrap();

    for scheme in ["light", "dark"] {
        for (name, window) in [("wide", WIDE), ("phone", PHONE)] {
            browser.open_page(&url, window, scheme);
            for tab in ["step", "peak", "cost", "training"] {
                browser.eval(&format!("document.getElementById('tab-{tab}').click()"));
                let widest = browser.eval("document.documentElement.scrollWidth");
                assert_eq!(widest, json!(window.0), "{tab} at {} is scrolled sideways", window.0);
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
    let place = "(() => { picture.scope = 'arena'; picture.draw(); const p = picture.plan; \
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
    real_run(&run);
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
    let paint =
        browser.eval("performance.getEntriesByType('paint').find(e => e.name === 'first-contentful-paint').startTime");
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
