//! A directory whose process is killed, whose disk is full, or whose file is damaged. Acknowledged
//! data is readable, or opening the directory fails with an error.

use std::{
    fs,
    io::{BufRead, BufReader},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::{Child, Command, Stdio},
};

use bus::{Bus, Consumer, PublishError};
use coordinator::store::Store;
use disk::{Disk, Error};
use domain::subject::{Filter, Subject};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use trellis_tests::{directory::Directory, servers::Disk as ServerDisk};

use super::{
    bus_of, event, identified, message, quiet, soon,
    store::{store_of, trace, write},
    text,
};

/// The variable that names the task and the directory of the other process.
const TASK: &str = "TRELLIS_TEST_DISK";
const FILE: &str = "trellis.redb";
/// More than an empty database has, and soon reached.
const SMALL_BYTES: u64 = 8 << 20;

/// Starts this test's executable as another process that runs only [`the_other_process`]. Writing
/// beyond its file size limit does not end it.
fn other_process(task: &str, directory: &Path) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap "" XFSZ; exec "$@""#, "sh"]);
    command.env(TASK, format!("{task} {}", directory.display()));
    only_the_other_process(command)
}

/// Spawns the command, with arguments that select only that test.
fn only_the_other_process(mut command: Command) -> Child {
    let name = format!("{}::the_other_process", module_path!().split_once("::").unwrap().1);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", &name, "--nocapture", "--test-threads=1"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// The lines that the process prints, without the output of the test runner.
fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.filter_map(|line| Some(line.split_once("says ")?.1.to_owned()))
}

#[expect(clippy::print_stdout, reason = "the test that started this process reads its output")]
fn say(what: &str) {
    println!("says {what}");
}

#[tokio::test]
async fn the_other_process() {
    let Some(task) = std::env::var_os(TASK) else { return };
    let task = task.into_string().unwrap();
    let (task, directory) = task.split_once(' ').unwrap();
    let disk = match Disk::open(Path::new(directory)) {
        Ok(disk) => disk,
        Err(error) => return say(&error.to_string()),
    };
    match task {
        "write" => write_on(&bus_of(&disk).await, &store_of(&disk)).await,
        "fill" => fill(&bus_of(&disk).await, &store_of(&disk)).await,
        "mounted" => fill_up(disk).await,
        "failing" => acknowledge_nothing(&bus_of(&disk).await).await,
        other => panic!("{other}"),
    }
}

/// Writes until it is killed, and prints each acknowledged number.
async fn write_on(bus: &Bus, store: &Store) {
    for number in 0_u32.. {
        bus.publish(identified(event(1), &number.to_string())).await.unwrap();
        store.commit(&[write(trace(u128::from(number) + 1), 1)]).await.unwrap();
        say(&number.to_string());
    }
}

async fn numbers(bus: &Bus) -> Result<Vec<String>, bus::Error> {
    let stored = bus.read(&Filter::Events).await?;
    Ok(stored.iter().map(|stored| text(&stored.payload)).collect())
}

/// The number of writes that a process acknowledged before it was killed.
fn killed_after(directory: &Directory, count: usize) -> u32 {
    let mut child = other_process("write", directory.path());
    let mut lines = lines(&mut child);
    let mut last = lines.by_ref().take(count).last().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    last = lines.last().unwrap_or(last);
    last.parse::<u32>().unwrap() + 1
}

#[tokio::test]
async fn a_killed_process_loses_nothing_that_it_acknowledged() {
    let directory = Directory::fresh();
    let mut at_least = 0;
    for _ in 0..3 {
        // Each process starts from number 0: the bus knows the messages by their ids, and the
        // traces exist.
        at_least = at_least.max(killed_after(&directory, 40));
        let disk = directory.open();
        let (bus, store) = (bus_of(&disk).await, store_of(&disk));
        let there = numbers(&bus).await.unwrap();
        let all: Vec<String> = (0..there.len()).map(|number| number.to_string()).collect();
        assert!(there == all && there.len() >= at_least as usize, "{at_least} {there:?}");
        let traces: Vec<_> = (1..=u128::from(at_least)).map(trace).collect();
        assert_eq!(store.versions(&traces).await.unwrap(), vec![1; traces.len()]);
    }
}

#[tokio::test]
async fn another_process_is_refused_until_the_first_has_gone() {
    let directory = Directory::fresh();
    let mut first = other_process("write", directory.path());
    let mut said = lines(&mut first);
    said.next().unwrap();
    let refused = Disk::open(directory.path()).unwrap_err();
    // The shell has become the process.
    let expected =
        Error::InUse { directory: directory.path().display().to_string(), pid: first.id().to_string() };
    assert_eq!(refused, expected);
    let mut second = other_process("write", directory.path());
    assert_eq!(lines(&mut second).next(), Some(refused.to_string()));
    second.wait().unwrap();
    assert!(said.next().is_some(), "the first process continues");
    first.kill().unwrap();
    first.wait().unwrap();
    Disk::open(directory.path()).unwrap();
}

/// Fills the disk, then reads, then gets more room. Prints the results, and exits without closing
/// anything.
async fn fill(bus: &Bus, store: &Store) {
    let (_, most) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, SMALL_BYTES, most).unwrap();
    let mut stored = Vec::new();
    let large = |number: usize| message(event(1), &format!("{number} {}", "x".repeat(50_000)));
    let refused = loop {
        match bus.publish(large(stored.len())).await {
            Ok(published) => stored.push(published.sequence),
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, PublishError::Full(why) if why.contains("no room")), "{refused}");
    let there =
        async || bus.read(&Filter::Events).await.unwrap().iter().map(|s| s.sequence).collect::<Vec<_>>();
    assert_eq!(there().await, stored, "reads still succeed");
    let mut object = vec![7; 1 << 20];
    object.extend(vec![8; usize::try_from(SMALL_BYTES).unwrap()]);
    bus.put_object("large", object.into()).await.unwrap_err();
    let mut values = write(trace(9), 1);
    values.values = vec![("k".into(), Some("v".repeat(usize::try_from(SMALL_BYTES).unwrap())))];
    store.commit(&[values]).await.unwrap_err();
    assert_eq!((there().await, store.versions(&[trace(9)]).await.unwrap()), (stored.clone(), vec![0]));
    assert_eq!(bus.get_object("large").await, Ok(None));
    setrlimit(Resource::RLIMIT_FSIZE, most, most).unwrap();
    stored.push(bus.publish(large(stored.len())).await.unwrap().sequence);
    store.commit(&[write(trace(9), 1)]).await.unwrap();
    assert_eq!(there().await, stored, "the next write is tried again");
    say(&stored.len().to_string());
    std::process::abort();
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_keeps_what_it_acknowledged() {
    let directory = Directory::fresh();
    let mut child = other_process("fill", directory.path());
    let said: Vec<String> = lines(&mut child).collect();
    child.wait().unwrap();
    let [count] = &said[..] else { panic!("the process failed: {said:?}") };
    let disk = directory.open();
    let (bus, store) = (bus_of(&disk).await, store_of(&disk));
    let there = bus.read(&Filter::Events).await.unwrap();
    assert_eq!(there.len().to_string(), *count);
    for (number, stored) in there.iter().enumerate() {
        assert_eq!(text(&stored.payload), format!("{number} {}", "x".repeat(50_000)));
    }
    assert_eq!(store.versions(&[trace(9)]).await.unwrap(), [1]);
}

/// Acknowledges one delivery while nothing can be written, and another later; exits without closing
/// anything.
async fn acknowledge_nothing(bus: &Bus) {
    bus.send((0..3).map(|n| message(Subject::Spawn, &n.to_string())).collect()).await.stored().await;
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    queue.want(2);
    let (first, second) = (soon(queue.next()).await, soon(queue.next()).await);
    let (_, most) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, 4096, most).unwrap();
    first.ack().await;
    bus.publish(message(event(1), "x")).await.unwrap_err();
    let waiting = async || bus.read(&Filter::One(Subject::Spawn)).await.unwrap().len();
    assert_eq!((waiting().await, bus.unacknowledged(&Consumer::Intake).await), (3, Ok(1)));
    setrlimit(Resource::RLIMIT_FSIZE, most, most).unwrap();
    second.ack().await;
    bus.publish(message(event(1), "x")).await.unwrap();
    assert_eq!(waiting().await, 1, "the second acknowledgement also stores the first one");
    say("done");
    std::process::abort();
}

#[tokio::test]
async fn an_acknowledgement_that_a_disk_does_not_take_goes_with_the_next() {
    let directory = Directory::fresh();
    let mut child = other_process("failing", directory.path());
    let said: Vec<String> = lines(&mut child).collect();
    child.wait().unwrap();
    assert_eq!(said, ["done"]);
    let bus = bus_of(&directory.open()).await;
    let mut queue = bus.consume(&Consumer::Intake).await.unwrap();
    queue.want(9);
    assert_eq!(text(&soon(queue.next()).await.payload), "2");
    quiet(queue.next()).await;
}

/// Fills the small disk of the directory, then makes room; prints the contents that it finds after
/// reopening.
async fn fill_up(disk: Disk) {
    let directory = std::env::current_dir().unwrap();
    let filler = directory.join("filler");
    fs::write(&filler, vec![1; 4 << 20]).unwrap();
    let bus = bus_of(&disk).await;
    let mut stored = 0;
    let large = message(event(1), &"x".repeat(50_000));
    let refused = loop {
        match bus.publish(large.clone()).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, PublishError::Full(why) if why.contains("No space left")), "{refused}");
    assert_eq!(bus.read(&Filter::Events).await.unwrap().len(), stored, "reads still succeed");
    drop((bus, disk));
    let disk = Disk::open(&directory.join("kept")).unwrap();
    let bus = bus_of(&disk).await;
    assert_eq!(bus.read(&Filter::Events).await.unwrap().len(), stored, "the directory opens on a full disk");
    fs::remove_file(&filler).unwrap();
    bus.publish(large).await.unwrap();
    drop((bus, disk));
    let bus = bus_of(&Disk::open(&directory.join("kept")).unwrap()).await;
    say(&format!("{}", bus.read(&Filter::Events).await.unwrap().len() - stored));
}

/// On a real disk, pages are missing where the file looked long enough. The test needs its own
/// mount, and therefore root.
#[tokio::test]
async fn a_small_disk_refuses_writes_until_there_is_room() {
    if !ServerDisk::allowed() {
        return println!("skipped: this process may not mount anything");
    }
    let directory = Directory::fresh();
    fs::create_dir_all(directory.path()).unwrap();
    let mount = r#"trap "" XFSZ; mount -t tmpfs -o size=16m none "$0" && cd "$0" && exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", mount]).arg(directory.path());
    command.env(TASK, format!("mounted {}/kept", directory.path().display()));
    let mut child = only_the_other_process(command);
    let said: Vec<String> = lines(&mut child).collect();
    child.wait().unwrap();
    assert_eq!(said, ["1"]);
}

/// Reads a damaged directory. Returns false if it can't be read, and panics if the contents differ
/// from the writes.
fn read_damaged(directory: &Path, count: u32) -> bool {
    let read = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let disk = Disk::open(directory).ok()?;
            let bus = Bus::Disk(bus::Disk::open(&disk, Default::default()).await.ok()?);
            let traces: Vec<_> = (1..=u128::from(count)).map(trace).collect();
            let loaded = store_of(&disk).load(&traces).await.ok()?;
            Some((numbers(&bus).await.ok()?, loaded))
        })
    };
    // A panic of the database is fine: it returned no wrong data.
    let Ok(Some((there, loaded))) = catch_unwind(AssertUnwindSafe(read)) else { return false };
    let all: Vec<String> = (0..there.len()).map(|number| number.to_string()).collect();
    assert!(
        there == all && there.len() >= count as usize,
        "{count} messages were acknowledged, stored are {there:?}"
    );
    for loaded in loaded {
        assert_eq!(loaded.record.unwrap().fields["head"], "version 1");
    }
    true
}

#[test]
fn a_damaged_file_is_read_as_it_was_written_or_not_at_all() {
    let (directory, copy) = (Directory::fresh(), Directory::fresh());
    let count = killed_after(&directory, 120);
    let whole = fs::read(directory.path().join(FILE)).unwrap();
    let length = whole.len();
    let read = |damaged: &[u8]| {
        // As another machine finds it: no marker of a clean shutdown.
        fs::remove_dir_all(copy.path()).ok();
        fs::create_dir_all(copy.path()).unwrap();
        fs::write(copy.path().join(FILE), damaged).unwrap();
        let could = read_damaged(copy.path(), count);
        // A second attempt gives the same answer.
        assert!(could || !read_damaged(copy.path(), count), "a second attempt read the damaged message");
        could
    };
    assert!(read(&whole), "the whole file can be read");
    // The end of the file may be unused; then cutting it loses nothing.
    for cut in [1, 100, 4096, length / 4, length / 2] {
        read(&whole[..length - cut]);
    }
    for left in [100, 4096] {
        assert!(!read(&whole[..left]), "a file with only {left} bytes was read");
    }
    let mut refused = 0;
    for page in 0..length / 4096 {
        let mut damaged = whole.clone();
        let at = page * 4096;
        // The last pages look like a torn write; in other pages a few bytes change, at varying
        // places.
        if at + 8 * 4096 >= length {
            damaged[at..].fill(0xA5);
        } else {
            let within = at + (page * 97) % 4000;
            damaged[within..within + 64].iter_mut().for_each(|byte| *byte ^= 0x5A);
        }
        refused += usize::from(!read(&damaged));
    }
    assert!(refused > 0, "no damaged page was noticed");
}

/// proves: the checksum of each row. The database itself would return the changed row.
#[tokio::test]
async fn a_row_that_was_changed_in_a_closed_file_is_refused() {
    let directory = Directory::fresh();
    let bus = bus_of(&directory.open()).await;
    bus.publish(message(event(1), "pay 10 dollars")).await.unwrap();
    let profile = Subject::Profile("writer".parse().unwrap());
    bus.publish(message(profile.clone(), "another")).await.unwrap();
    drop(bus);
    let file = directory.path().join(FILE);
    let mut bytes = fs::read(&file).unwrap();
    let places = |bytes: &[u8]| {
        let found = bytes.windows(14).enumerate().filter(|(_, window)| *window == b"pay 10 dollars");
        found.map(|(at, _)| at).collect::<Vec<_>>()
    };
    assert!(!places(&bytes).is_empty());
    for at in places(&bytes) {
        bytes[at..at + 14].copy_from_slice(b"pay 90 dollars");
    }
    fs::write(&file, bytes).unwrap();
    let bus = bus_of(&directory.open()).await;
    let refused = bus.read(&Filter::EventsOf(super::trace(1))).await.unwrap_err();
    assert!(refused.to_string().contains("a row was altered"), "{refused}");
    let other = bus.last(&Filter::One(profile)).await.unwrap().unwrap();
    assert_eq!(text(&other.payload), "another", "other rows are unchanged");
}
