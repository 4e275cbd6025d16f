//! A collector of spans in this process. It receives OTLP over HTTP and decodes it with
//! OpenTelemetry's own types. It can refuse requests, limit their size, or hang.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, StatusCode, header::CONTENT_ENCODING},
    routing::post,
};
use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value},
    trace::v1::span::Event,
};
use prost::Message;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A span as it was received.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    pub trace: String,
    pub id: String,
    /// Empty for a root.
    pub parent: String,
    pub name: String,
    pub kind: i32,
    pub start: u64,
    pub end: u64,
    pub attributes: BTreeMap<String, Value>,
    /// Names and attributes.
    pub events: Vec<(String, BTreeMap<String, Value>)>,
    /// Span ids.
    pub links: Vec<String>,
    /// The message of the span's status, if that is an error.
    pub error: Option<String>,
    /// The resource of the process that sent the span.
    pub resource: BTreeMap<String, Value>,
}

#[derive(Debug, Default)]
struct State {
    spans: Mutex<Vec<Received>>,
    /// All received bodies, to search them for forbidden texts.
    bodies: Mutex<Vec<Bytes>>,
    requests: AtomicUsize,
    refuses: AtomicBool,
    /// The largest accepted request in bytes; 0 if there is no limit.
    most_bytes: AtomicUsize,
    hangs: AtomicBool,
}

#[derive(Debug, Clone)]
pub struct Collector {
    state: Arc<State>,
    port: u16,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Collector {
    /// Starts the collector, which listens until the runtime of the test ends.
    pub async fn start() -> Self {
        let state: Arc<State> = Arc::default();
        let of_route = state.clone();
        let take = move |headers: HeaderMap, body: Bytes| {
            let state = of_route.clone();
            async move { state.take(unpacked(&headers, body)).await }
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback has free ports");
        let port = listener.local_addr().expect("the listener is bound").port();
        let service = Router::new().route("/v1/traces", post(take));
        tokio::spawn(async move { axum::serve(listener, service).await });
        Collector { state, port }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The environment of a process that exports everything to this collector, at once.
    pub fn environment(&self) -> Vec<(String, String)> {
        exporting_to(&self.url(), "http/protobuf")
    }

    pub fn refuse(&self, refuses: bool) {
        self.state.refuses.store(refuses, SeqCst);
    }

    /// From now on, refuses larger requests, as gRPC servers do.
    pub fn refuse_above(&self, bytes: usize) {
        self.state.most_bytes.store(bytes, SeqCst);
    }

    /// From now on, accepts requests and never answers.
    pub fn hang(&self) {
        self.state.hangs.store(true, SeqCst);
    }

    pub fn requests(&self) -> usize {
        self.state.requests.load(SeqCst)
    }

    /// All spans so far, without duplicates. Panics if two spans with one id differ.
    pub fn spans(&self) -> Vec<Received> {
        let mut once: BTreeMap<(String, String), Received> = BTreeMap::new();
        for span in locked(&self.state.spans).iter() {
            let key = (span.trace.clone(), span.id.clone());
            if let Some(before) = once.get(&key) {
                // Another process may export a context's spans again, so the resource may differ.
                let same = Received { resource: before.resource.clone(), ..span.clone() };
                assert_eq!(before, &same, "two spans have one id");
            }
            once.insert(key, span.clone());
        }
        once.into_values().collect()
    }

    pub fn of(&self, trace: &str) -> Vec<Received> {
        self.spans().into_iter().filter(|span| span.trace == trace).collect()
    }

    /// True if a text occurs in any received body.
    pub fn has(&self, text: &str) -> bool {
        let found = |body: &Bytes| body.windows(text.len()).any(|part| part == text.as_bytes());
        locked(&self.state.bodies).iter().any(found)
    }
}

/// The environment of a process that exports to an address, with a long timeout for the last spans.
pub fn exporting_to(url: &str, protocol: &str) -> Vec<(String, String)> {
    let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![
        set("OTEL_EXPORTER_OTLP_ENDPOINT", url),
        set("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        set("OTEL_METRICS_EXPORTER", "none"),
        set("OTEL_BSP_EXPORT_TIMEOUT", "20000"),
    ]
}

impl State {
    async fn take(&self, body: Bytes) -> StatusCode {
        self.requests.fetch_add(1, SeqCst);
        if self.hangs.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.refuses.load(SeqCst) {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        let most = self.most_bytes.load(SeqCst);
        if most > 0 && body.len() > most {
            return StatusCode::PAYLOAD_TOO_LARGE;
        }
        let Ok(request) = ExportTraceServiceRequest::decode(body.clone()) else {
            return StatusCode::BAD_REQUEST;
        };
        locked(&self.bodies).push(body);
        locked(&self.spans).extend(received(request));
        StatusCode::OK
    }
}

/// The body of a request, decompressed if needed.
fn unpacked(headers: &HeaderMap, body: Bytes) -> Bytes {
    if headers.get(CONTENT_ENCODING).is_none_or(|encoding| encoding != "gzip") {
        return body;
    }
    let mut plain = Vec::new();
    GzDecoder::new(&body[..]).read_to_end(&mut plain).expect("a body with the gzip header is gzip");
    plain.into()
}

fn received(request: ExportTraceServiceRequest) -> Vec<Received> {
    let mut spans = Vec::new();
    for of_process in request.resource_spans {
        let resource =
            attributes(of_process.resource.map(|resource| resource.attributes).unwrap_or_default());
        for span in of_process.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let status = span.status.unwrap_or_default();
            let event = |event: Event| (event.name, attributes(event.attributes));
            spans.push(Received {
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                name: span.name,
                kind: span.kind,
                start: span.start_time_unix_nano,
                end: span.end_time_unix_nano,
                attributes: attributes(span.attributes),
                events: span.events.into_iter().map(event).collect(),
                links: span.links.into_iter().map(|link| hex(&link.span_id)).collect(),
                error: (status.code == 2).then_some(status.message),
                resource: resource.clone(),
            });
        }
    }
    spans
}

fn attributes(list: Vec<KeyValue>) -> BTreeMap<String, Value> {
    let count = list.len();
    let map: BTreeMap<String, Value> =
        list.into_iter().map(|KeyValue { key, value, .. }| (key, plain(value))).collect();
    assert_eq!(map.len(), count, "an attribute exists twice: {map:?}");
    map
}

fn plain(value: Option<AnyValue>) -> Value {
    match value.and_then(|value| value.value) {
        Some(any_value::Value::StringValue(text)) => json!(text),
        Some(any_value::Value::BoolValue(flag)) => json!(flag),
        Some(any_value::Value::IntValue(number)) => json!(number),
        Some(any_value::Value::DoubleValue(number)) => json!(number),
        Some(any_value::Value::ArrayValue(list)) => {
            list.values.into_iter().map(|value| plain(Some(value))).collect()
        }
        Some(_) | None => Value::Null,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The tolerance for a child outside its parent's time: the clocks of processes differ, and
/// coordinators use milliseconds.
const SLACK_NANOS: u64 = 50_000_000;

/// Checks a whole trace: it has one root, every parent exists, children are within their parents'
/// times, and links point to known spans. `caller` is the span of the client that submitted, if
/// there is one.
pub fn check_tree(spans: &[Received], caller: Option<&str>) {
    let by_id: BTreeMap<&str, &Received> = spans.iter().map(|span| (span.id.as_str(), span)).collect();
    assert_eq!(by_id.len(), spans.len(), "ids are unique");
    let traces: BTreeSet<&str> = spans.iter().map(|span| span.trace.as_str()).collect();
    assert_eq!(traces.len(), 1, "{traces:?}");
    let is_root = |span: &&Received| span.parent == caller.unwrap_or_default();
    let roots: Vec<&Received> = spans.iter().filter(is_root).collect();
    assert_eq!(roots.len(), 1, "one root: {roots:#?}");
    for span in spans {
        assert!(span.start <= span.end, "{span:?}");
        for link in &span.links {
            assert!(by_id.contains_key(link.as_str()), "{} links to a missing span", span.name);
        }
        if is_root(&span) {
            continue;
        }
        let Some(parent) = by_id.get(span.parent.as_str()) else {
            panic!(
                "the parent of `{}` {:?} is missing; there are {:?}",
                span.name,
                span.attributes,
                names(spans)
            )
        };
        let (earliest, latest) = (parent.start.saturating_sub(SLACK_NANOS), parent.end + SLACK_NANOS);
        assert!(
            span.start >= earliest && span.end <= latest,
            "`{}` [{}, {}] is outside of `{}` [{}, {}]",
            span.name,
            span.start,
            span.end,
            parent.name,
            parent.start,
            parent.end
        );
    }
}

fn names(spans: &[Received]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

/// A trace as text: a line for each span, children below their parents, ordered by name and start.
/// Equal trees give equal texts, independent of ids and times.
pub fn drawn(spans: &[Received]) -> String {
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
    let mut beneath: BTreeMap<&str, Vec<&Received>> = BTreeMap::new();
    for span in spans {
        let parent = if ids.contains(span.parent.as_str()) { span.parent.as_str() } else { "" };
        beneath.entry(parent).or_default().push(span);
    }
    let mut out = String::new();
    draw(&beneath, "", 0, &mut out);
    out
}

fn draw(beneath: &BTreeMap<&str, Vec<&Received>>, parent: &str, depth: usize, out: &mut String) {
    let mut children = beneath.get(parent).cloned().unwrap_or_default();
    let child = |span: &Received| span.attributes.get("trellis.child_id").map(ToString::to_string);
    children.sort_by_key(|span| (span.name.clone(), child(span), span.start));
    for span in children {
        out.push_str(&"  ".repeat(depth));
        out.push_str(&span.name);
        if let Some(error) = &span.error {
            out.push_str(&format!(" !{error}"));
        }
        for (event, _) in &span.events {
            out.push_str(&format!(" [{event}]"));
        }
        out.push('\n');
        draw(beneath, &span.id, depth + 1, out);
    }
}
