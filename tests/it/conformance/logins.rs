//! Connecting as a user, over TLS, and missing permissions: a denial is reported at once, with its
//! subject, and not as a request that times out. The certificates are made here.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use bus::{
    Action, Bus, Connect, Consumer, Denied, Error, From, Login, Nats, PublishError, RequestError, Stream,
};
use bytes::Bytes;
use coordinator::store::{self, DefaultUser};
use domain::{
    span::Headers,
    subject::{Filter, Namespace, Subject},
    tls::Tls,
};
use trellis_tests::{
    cluster::eventually,
    servers::{NatsServer, RedisServer},
};

use super::{
    event, message, soon,
    store::{PARTITIONS, commit, trace, version, write},
    text, topology,
};

const INBOX: &str = "_INBOX_me";

/// A server with a user `all`, who may do everything, and `me`, with these permissions.
fn server(permissions: &str) -> NatsServer {
    let users = format!(
        "authorization {{ users: [\n  {{ user: all, password: all }}\n  {{ user: me, password: me, permissions: {{ {permissions} }} }}\n] }}"
    );
    NatsServer::start_with("", &users)
}

async fn login(server: &NatsServer, who: &str, inbox: Option<&str>) -> Bus {
    let mut to = Connect::new(server.url(), Namespace::default(), who);
    to.login = Login { user: Some(who.into()), password: Some(who.into()), ..Login::default() };
    to.inbox = inbox.map(str::to_owned);
    Bus::Nats(Nats::connect(&to).await.unwrap())
}

fn may_not_publish(subject: &str) -> Denied {
    Denied { action: Action::Publish, subject: subject.into() }
}

/// Longer than a test may take: waiting for it would fail the test.
const LONG: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn s1_a_denial_of_the_server_is_reported_at_once_with_its_subject() {
    let server = server(&format!("publish: [\"{INBOX}.>\"], subscribe: [\"{INBOX}.>\"]"));
    login(&server, "all", None).await.set_up(&topology()).await.unwrap();
    let bus = login(&server, "me", Some(INBOX)).await;
    let subject = Subject::Submit;
    let asked = soon(bus.request(&subject, &Headers::new(), Bytes::new(), LONG)).await;
    assert_eq!(asked, Err(RequestError::Denied(may_not_publish("agent.submit"))));
    let published = soon(bus.publish(message(Subject::Cancel, "x"))).await;
    assert_eq!(published, Err(PublishError::Denied(may_not_publish("agent.cancel"))));
    let gathered = soon(bus.gather(&Subject::Worker, Bytes::new(), LONG)).await;
    assert_eq!(gathered, Err(Error::Denied(may_not_publish("agent.worker"))));
    let stops = Denied { action: Action::Subscribe, subject: "agent.stop.*".into() };
    assert_eq!(soon(bus.subscribe(&Filter::Stops)).await.unwrap_err(), Error::Denied(stops));
    let read = soon(bus.read(&Filter::Events)).await;
    assert_eq!(read, Err(Error::Denied(may_not_publish("$JS.API.STREAM.MSG.GET.AGENT_EVENT"))));
    let followed = soon(bus.follow(&[Filter::Events], From::Start)).await;
    assert_eq!(followed.unwrap_err(), Error::Denied(may_not_publish("$JS.API.STREAM.INFO.AGENT_EVENT")));
    let consumed = soon(bus.consume(&Consumer::Intake)).await;
    assert_eq!(
        consumed.unwrap_err(),
        Error::Denied(may_not_publish("$JS.API.CONSUMER.INFO.AGENT_INTAKE.intake"))
    );
    let object = soon(bus.put_object("x", Bytes::from_static(b"1"))).await;
    let about = "$JS.API.STREAM.MSG.GET.OBJ_AGENT_OUTPUTS";
    assert_eq!(object, Err(Error::Denied(may_not_publish(about))));
    // A user without permission to request anything can still ping the server.
    soon(bus.ping()).await.unwrap();
}

/// Without the option the client uses the common inbox prefix, which this user may not subscribe
/// to.
#[tokio::test]
async fn s1_a_wrong_inbox_is_reported_with_every_request() {
    let server = server(&format!("publish: [\">\"], subscribe: [\"{INBOX}.>\"]"));
    let bus = login(&server, "me", None).await;
    for _ in 0..2 {
        let asked = soon(bus.request(&Subject::Submit, &Headers::new(), Bytes::new(), LONG)).await;
        let Err(RequestError::Denied(denied)) = asked else { panic!("{asked:?}") };
        assert_eq!(denied.action, Action::Subscribe);
        assert!(denied.subject.starts_with("_INBOX."), "{denied}");
    }
}

/// The rights of a worker and an observer suffice for objects and for following: no consumer is
/// created, nothing is removed.
#[tokio::test]
async fn s1_objects_and_logs_are_read_without_making_consumers() {
    let server = server(&format!(
        "publish: [\"{INBOX}.>\", \"agent.event.*.*\", \"$O.AGENT_OUTPUTS.>\", \"$JS.API.STREAM.INFO.*\", \
         \"$JS.API.STREAM.MSG.GET.*\", \"$JS.API.DIRECT.GET.*\"], \
         subscribe: [\"{INBOX}.>\", \"agent.event.*.*\"]"
    ));
    let all = login(&server, "all", None).await;
    all.set_up(&topology()).await.unwrap();
    let bus = login(&server, "me", Some(INBOX)).await;
    let large: Bytes = (0..5_000_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    for name in ["a.b.large", "overflow/x"] {
        soon(bus.put_object(name, large.clone())).await.unwrap();
        assert_eq!(soon(bus.get_object(name)).await.unwrap(), Some(large.clone()));
        // A new object under the same name: the chunks of the first one stay, because this user may
        // not remove them.
        soon(bus.put_object(name, Bytes::from_static(b"other"))).await.unwrap();
        assert_eq!(soon(bus.get_object(name)).await.unwrap(), Some(Bytes::from_static(b"other")));
    }
    assert_eq!(soon(bus.get_object("a.b.none")).await.unwrap(), None);
    assert_eq!(bus.objects("a.b.").await.unwrap(), ["a.b.large"]);
    let mut follow = bus.follow(&[Filter::Events], From::Start).await.unwrap();
    for number in 0..1_200 {
        all.publish(message(event(1), &number.to_string())).await.unwrap();
        if number % 400 == 0 {
            assert_eq!(text(&soon(follow.next()).await.unwrap().payload), number.to_string());
        } else if number % 400 == 399 {
            for expected in number - 398..=number {
                assert_eq!(text(&soon(follow.next()).await.unwrap().payload), expected.to_string());
            }
        }
    }
}

/// Storing the same bytes again stores nothing.
#[tokio::test]
async fn an_object_that_is_stored_twice_is_stored_once() {
    let (_server, bus) = super::nats().await;
    let stored = async || {
        let fills = bus.fill().await.unwrap();
        fills.iter().find(|fill| fill.storage == bus::Storage::Objects).unwrap().last
    };
    let large = Bytes::from(vec![7; 1 << 20]);
    bus.put_object("a.b.c", large.clone()).await.unwrap();
    let once = stored().await;
    bus.put_object("a.b.c", large).await.unwrap();
    assert_eq!(stored().await, once);
}

/// The readers may not create it: a worker has no right to create a consumer.
#[tokio::test]
async fn s1_the_publisher_of_work_creates_the_queue_of_its_pool() {
    let (_server, bus) = super::nats().await;
    let pool: domain::id::PoolName = "gpu".parse().unwrap();
    let reader = Consumer::Execute(pool.clone());
    let refused = bus.consume(&reader).await.unwrap_err();
    assert!(refused.to_string().contains("gpu"), "{refused}");
    bus.publish(message(Subject::Execute(pool), "work")).await.unwrap();
    let mut queue = bus.consume(&reader).await.unwrap();
    queue.want(1);
    let delivery = soon(queue.next()).await;
    assert_eq!(text(&delivery.payload), "work");
    delivery.ack().await;
    let default = Consumer::Execute(domain::id::PoolName::default_pool());
    bus.consume(&default).await.unwrap();
}

/// A coordinator without the right to create streams finds those of the provisioner, and reports
/// missing ones.
#[tokio::test]
async fn s1_a_role_that_may_not_create_streams_only_compares_them() {
    let server = server(&format!(
        "publish: [\"{INBOX}.>\", \"$JS.API.STREAM.INFO.*\", \"$JS.API.CONSUMER.INFO.>\"], subscribe: [\"{INBOX}.>\"]"
    ));
    let bus = login(&server, "me", Some(INBOX)).await;
    let missing = soon(bus.set_up(&topology())).await.unwrap_err();
    let Error::Denied(denied) = missing else { panic!("{missing}") };
    assert!(denied.subject.starts_with("$JS.API.STREAM.CREATE."), "{denied}");
    let all = login(&server, "all", None).await;
    all.set_up(&topology()).await.unwrap();
    soon(bus.set_up(&topology())).await.unwrap();
    // Other limits do not prevent a start; other subjects do.
    let smaller = bus::Topology { max_log_bytes: 8 << 20, ..topology() };
    soon(bus.set_up(&smaller)).await.unwrap();
    let fewer = bus::Topology { partitions: 2, ..topology() };
    let differs = soon(bus.set_up(&fewer)).await.unwrap_err();
    assert!(matches!(differs, Error::Mismatch { .. }), "{differs}");
    let fills = all.fill().await.unwrap();
    let of = |stream| fills.iter().find(|fill| fill.storage == bus::Storage::Stream(stream)).unwrap();
    assert_eq!(of(Stream::Event).max_bytes, Some(16 << 20));
}

/// A CA, a server's certificate for 127.0.0.1 and a client's, made by openssl.
pub(crate) struct Certificates(PathBuf);

impl Certificates {
    pub(crate) fn make(dir: &Path) -> Self {
        let run = |arguments: &str| {
            let done =
                Command::new("openssl").args(arguments.split_whitespace()).current_dir(dir).output().unwrap();
            assert!(done.status.success(), "{arguments}\n{}", String::from_utf8_lossy(&done.stderr));
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        for ca in ["ca", "other"] {
            run(&format!(
                "req -x509 {key} -keyout {ca}.key -out {ca}.pem -days 2 -subj /CN={ca} -addext basicConstraints=critical,CA:TRUE"
            ));
        }
        for (who, usage) in [("server", "serverAuth"), ("client", "clientAuth")] {
            std::fs::write(
                dir.join("extensions"),
                format!("subjectAltName=IP:127.0.0.1\nextendedKeyUsage={usage}\n"),
            )
            .unwrap();
            run(&format!("req {key} -keyout {who}.key -out {who}.csr -subj /CN={who}"));
            run(&format!(
                "x509 -req -in {who}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out {who}.pem"
            ));
        }
        Certificates(dir.to_owned())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("trellis-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn with_provider() {
    rustls::crypto::ring::default_provider().install_default().ok();
}

#[tokio::test]
async fn s1_nats_over_tls_with_our_ca_our_certificate_and_an_nkey() {
    with_provider();
    let dir = scratch("nats-tls");
    let made = Certificates::make(&dir);
    let seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    let public = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    std::fs::write(dir.join("seed"), format!("# me\n{seed}\n")).unwrap();
    let settings = format!(
        "tls {{ cert_file: \"{0}/server.pem\", key_file: \"{0}/server.key\", ca_file: \"{0}/ca.pem\", verify: true }}\n\
         authorization {{ users: [{{ nkey: {public} }}] }}",
        dir.display()
    );
    let server = NatsServer::start_with("", &settings);
    let certificate = Some((made.path("client.pem"), made.path("client.key")));
    let to = |ca: &str, certificate: Option<(PathBuf, PathBuf)>, nkey: Option<PathBuf>| {
        let mut to = Connect::new(server.url(), Namespace::default(), "x");
        to.tls = Tls { required: true, ca: Some(made.path(ca)), certificate };
        to.login = Login { nkey, ..Login::default() };
        to
    };
    let seed = || Some(dir.join("seed"));
    let bus = Bus::Nats(Nats::connect(&to("ca.pem", certificate.clone(), seed())).await.unwrap());
    bus.ping().await.unwrap();
    bus.set_up(&topology()).await.unwrap();
    let cases = [
        ("another CA", to("other.pem", certificate.clone(), seed())),
        ("no certificate", to("ca.pem", None, seed())),
        ("no nkey", to("ca.pem", certificate.clone(), None)),
        ("a CA that is not there", to("none.pem", certificate.clone(), seed())),
        ("a seed that is none", to("ca.pem", certificate, Some(made.path("ca.pem")))),
    ];
    for (case, to) in cases {
        let error = soon(Nats::connect(&to)).await.expect_err(case);
        assert!(matches!(error, Error::Connect { .. }), "{case}: {error}");
    }
    // A client that requires TLS does not talk to a server without it.
    let plain = NatsServer::start();
    let mut to = Connect::new(plain.url(), Namespace::default(), "x");
    Nats::connect(&to).await.unwrap();
    to.tls.required = true;
    assert!(matches!(soon(Nats::connect(&to)).await, Err(Error::Connect { .. })));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn s1_redis_over_tls_with_our_ca_our_certificate_and_a_user() {
    with_provider();
    let dir = scratch("redis-tls");
    let made = Certificates::make(&dir);
    let path = |name: &str| made.path(name).to_string_lossy().into_owned();
    let tls_port = trellis_tests::servers::free_port();
    let server = RedisServer::start_with(&[
        "--tls-port",
        &tls_port.to_string(),
        "--tls-cert-file",
        &path("server.pem"),
        "--tls-key-file",
        &path("server.key"),
        "--tls-ca-cert-file",
        &path("ca.pem"),
        "--user",
        "me",
        "on",
        ">s3cret",
        "~*",
        "+@all",
        "--user",
        "default",
        "off",
    ]);
    let url = format!("rediss://127.0.0.1:{tls_port}");
    let login = |password: &str, ca: &str, certificate: bool| store::Login {
        user: Some("me".into()),
        password: Some(password.into()),
        tls: Tls {
            required: true,
            ca: Some(made.path(ca)),
            certificate: certificate.then(|| (made.path("client.pem"), made.path("client.key"))),
        },
    };
    let connect = async |url: &str, login: store::Login| {
        soon(store::Redis::connect_as(url, &login, Namespace::default(), 4)).await
    };
    let store = connect(&url, login("s3cret", "ca.pem", true)).await.unwrap();
    store::Store::Redis(store).ping().await.unwrap();
    for (case, wrong) in [
        ("password", login("wrong", "ca.pem", true)),
        ("CA", login("s3cret", "other.pem", true)),
        ("certificate", login("s3cret", "ca.pem", false)),
    ] {
        assert!(connect(&url, wrong).await.is_err(), "{case}");
    }
    let plain = connect(&server.url(), login("s3cret", "ca.pem", true)).await.unwrap_err();
    assert!(plain.to_string().contains("rediss://"), "{plain}");
    let shown = format!("{:?}", login("s3cret", "ca.pem", true));
    assert!(!shown.contains("s3cret"), "{shown}");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Each case has the rules of the user `default`, their classification, and the version of a trace
/// after a restart.
#[tokio::test]
async fn s1_the_default_user_of_redis_decides_what_a_restart_restores() {
    let cases = [
        ("on nopass ~* +@all", DefaultUser::Unrestricted, Some(1)),
        ("off resetpass ~* &* +@all", DefaultUser::Unrestricted, Some(1)),
        ("off resetpass ~* +@all -@dangerous", DefaultUser::Unrestricted, Some(1)),
        ("off resetpass resetkeys resetchannels -@all", DefaultUser::Restricted, None),
        ("off resetpass ~* -@all", DefaultUser::Restricted, None),
        ("off resetpass resetkeys ~other:* +@all", DefaultUser::Restricted, None),
    ];
    for (rules, expected, kept) in cases {
        let me = ["--user", "me", "on", ">s3cret", "~*", "+@all", "--user", "default"];
        let words: Vec<&str> = me.into_iter().chain(rules.split(' ')).collect();
        let mut server = RedisServer::start_with(&words);
        let login =
            store::Login { user: Some("me".into()), password: Some("s3cret".into()), ..Default::default() };
        let connect = async |url: &str| {
            let connected = store::Redis::connect_as(url, &login, Namespace::default(), PARTITIONS).await;
            connected.map(store::Store::Redis)
        };
        let store = connect(&server.url()).await.unwrap();
        assert_eq!(store.default_user().await.unwrap(), expected, "{rules}");
        commit(&store, write(trace(1), 1)).await;
        server.restart();
        eventually("Redis has loaded its file", async || match connect(&server.url()).await {
            Ok(store) => store.ping().await.is_ok(),
            Err(_) => false,
        })
        .await;
        let store = connect(&server.url()).await.unwrap();
        assert_eq!(version(&store, trace(1)).await, kept, "{rules}");
    }
}
