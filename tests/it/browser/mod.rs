//! The page in a real browser: Playwright drives a headless Chromium, against a `trellis dev` and
//! against a real cluster. The scripts beside this file contain the actions; `views.mjs` has the
//! table of all views.

mod place;

use std::{fs::File, path::Path, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
    sync::Semaphore,
};
use trellis_tests::{cluster::SOON, directory::Directory, servers::installed};

use place::Place;

/// A browser is half a dozen processes: one at a time.
static ONE: Semaphore = Semaphore::const_new(1);

/// Runs scripts in one browser, one after the other (`drive.mjs`). A printed line that begins with
/// `ask ` is a request to `Place::act`.
async fn drive(place: impl Future<Output = Place>, words: &[&str]) {
    let _alone = ONE.acquire().await.unwrap();
    let mut place = place.await;
    let (here, files) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("it/browser"), Directory::fresh());
    std::fs::create_dir(files.path()).unwrap();
    let errors = files.path().join("errors");
    let mut node = Command::new("node")
        .arg(here.join("drive.mjs"))
        .args([&["--url", &place.url()], words].concat())
        .env("TRELLIS_CHROMIUM", installed("TRELLIS_CHROMIUM", Path::new("browser/bin/chromium")))
        .env(
            "TRELLIS_BROWSER_MODULES",
            installed("TRELLIS_BROWSER_MODULES", Path::new("browser/node_modules")),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(File::create(&errors).unwrap())
        .kill_on_drop(true)
        .spawn()
        .expect("node is on the PATH");
    let (mut told, mut said) = (node.stdin.take().unwrap(), Vec::new());
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
    let driven = tokio::time::timeout(SOON * 4, async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some(asked) = line.strip_prefix("ask ") {
                let answer = place.act(asked).await;
                told.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            }
            said.push(line);
        }
        node.wait().await.unwrap().success()
    });
    let passed = driven.await.unwrap_or(false);
    let wrong = || std::fs::read_to_string(&errors).unwrap_or_default();
    assert!(passed, "{}\n{}\n---- the server's log\n{}", said.join("\n"), wrong(), place.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_every_view_is_shown_whole_and_can_be_read_by_everybody() {
    drive(Place::dev(), &["empty", "views"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_runs_are_found_watched_cancelled_and_raised_with_a_mouse_and_with_keys() {
    drive(Place::dev(), &["runs", "tree", "timeline", "graph", "keys", "traced"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_of_two_answers_to_a_question_one_is_accepted_and_the_other_is_refused() {
    drive(Place::dev(), &["agent", "questions"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_each_role_sees_what_it_may_see_and_no_button_for_what_it_may_not_do() {
    drive(Place::dev(), &["session", "roles"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_the_page_works_behind_a_prefix() {
    drive(Place::dev(), &["prefix"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_the_page_continues_when_its_server_is_back() {
    drive(Place::dev(), &["restart"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_a_page_that_was_open_from_the_start_equals_at_the_end_a_new_page() {
    drive(Place::dev(), &["grows"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_a_graph_is_typed_run_and_broken_on_the_playground() {
    drive(Place::dev(), &["playground"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_the_text_of_agents_stays_text_in_a_browser() {
    drive(Place::dev(), &["hostile"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_failed_steps_run_again_and_nested_or_later_rows_are_found() {
    drive(Place::dev(), &["rerun", "inner", "pages"]).await;
}

/// Checks that do not depend on the deployment are skipped here.
#[tokio::test(flavor = "multi_thread")]
async fn x10_on_a_cluster_every_view_and_button_works() {
    let all = ["--quick", "views", "runs", "tree", "agent", "questions", "session", "roles", "letters"];
    drive(Place::cluster(), &all).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_a_worker_that_dies_or_is_drained_and_a_gateway_that_restarts_are_seen() {
    drive(Place::cluster(), &["lost", "signed_out", "drain"]).await;
}
