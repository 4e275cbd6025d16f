//! A tool server that follows the protocol except where a seed makes it fail. The same seed gives
//! the same conversation.

use serde_json::{Value, json};

use world::dice::Dice;

/// The length of a line that a client must reject.
const TOO_LONG: usize = (4 << 20) + 1;
/// The tool in a correct list.
pub const TOOL: &str = "echo";

/// The server's reaction to a message.
#[derive(Debug)]
pub struct Said {
    pub bytes: Vec<u8>,
    pub then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    GoesOn,
    /// The server stops reading and writing, but stays connected.
    IsDeaf,
    Ends,
}

/// A conversation with one client.
#[derive(Debug)]
pub struct FuzzedTools {
    dice: Dice,
    /// The number of client messages that are answered correctly at first.
    well: usize,
}

impl FuzzedTools {
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let well = dice.below(6);
        FuzzedTools { dice, well }
    }

    /// The reaction to a message of the client.
    pub fn answer(&mut self, message: &str) -> Said {
        let asked: Value = serde_json::from_str(message).unwrap_or_default();
        let valid = valid(&asked);
        if self.well > 0 {
            self.well -= 1;
            return goes_on(valid.map_or_else(Vec::new, |answer| line(&answer)));
        }
        // A third of the answers stay correct, so that wrong ones reach every part of a
        // conversation.
        match self.dice.below(3) {
            0 => goes_on(valid.map_or_else(Vec::new, |answer| line(&answer))),
            _ => self
                .wrong(&asked, &valid.unwrap_or_else(|| json!({"jsonrpc": "2.0", "id": 99, "result": {}}))),
        }
    }

    fn wrong(&mut self, asked: &Value, valid: &Value) -> Said {
        let well = line(valid);
        let dice = &mut self.dice;
        match dice.below(24) {
            0..=5 => goes_on(mutated(well, dice)),
            6 => goes_on(line(&with_id(valid, strange(dice)))),
            7 => goes_on([well.clone(), well.clone(), well].concat()),
            8 => goes_on([unasked(dice), well].concat()),
            9 => goes_on([nested(dice), well].concat()),
            10 => goes_on([b"\xff\xfe\xc0{\"\xed\xa0\x80\n".to_vec(), well].concat()),
            11 => goes_on(vec![b'x'; TOO_LONG]),
            12 => goes_on(line(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": tools(dice)}))),
            13 => goes_on([flood(dice, 3000), well].concat()),
            14 => goes_on([questions(dice, 200), well].concat()),
            15 => Said { bytes: questions(dice, 2000), then: Then::IsDeaf },
            16 => goes_on([cancelled(asked, dice), well].concat()),
            17 => {
                let half = dice.below(well.len());
                Said { bytes: well[..half].to_vec(), then: Then::Ends }
            }
            18 => goes_on(Vec::new()),
            19 => Said { bytes: Vec::new(), then: Then::Ends },
            20 => goes_on(line(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result(dice)}))),
            21 => goes_on(line(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": error(dice)}))),
            22 => goes_on(line(&json!([valid, valid]))),
            _ => Said { bytes: well, then: Then::IsDeaf },
        }
    }
}

fn goes_on(bytes: Vec<u8>) -> Said {
    Said { bytes, then: Then::GoesOn }
}

fn line(value: &Value) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}

/// The answer of a correct server; `None` to a notification.
fn valid(asked: &Value) -> Option<Value> {
    let id = asked.get("id")?;
    let result = match asked["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "fuzzed", "version": "1"},
        }),
        "tools/list" => json!({"tools": [tool(TOOL, "says it again")]}),
        "tools/call" => json!({"content": [{"type": "text", "text": "said again"}]}),
        _ => json!({}),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

fn tool(name: &str, description: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    json!({"name": name, "description": description, "inputSchema": schema})
}

fn with_id(answer: &Value, id: Value) -> Value {
    let mut answer = answer.clone();
    answer["id"] = id;
    answer
}

/// A value of an unexpected type or size.
fn strange(dice: &mut Dice) -> Value {
    match dice.below(10) {
        0 => Value::Null,
        1 => json!(-1),
        2 => json!(1.5),
        3 => json!(u64::MAX),
        4 => json!("0"),
        5 => json!("i".repeat(100_000)),
        6 => json!([]),
        7 => json!({"id": 0}),
        8 => json!(dice.below(1000)),
        _ => json!(true),
    }
}

/// Answers to requests that the client never sent.
fn unasked(dice: &mut Dice) -> Vec<u8> {
    let answer = |id: usize| line(&json!({"jsonrpc": "2.0", "id": 1000 + id, "result": {"tools": []}}));
    (0..=dice.below(500)).flat_map(answer).collect()
}

fn nested(dice: &mut Dice) -> Vec<u8> {
    let (open, deep) = (["[", "{\"a\":"][dice.below(2)], [127, 129, 10_000, 60_000][dice.below(4)]);
    format!("{}\n", open.repeat(deep)).into_bytes()
}

/// A wrong list of tools: too long, too large, with duplicate names, names of the worker's tools,
/// or invalid names.
fn tools(dice: &mut Dice) -> Value {
    let listed: Vec<Value> = match dice.below(6) {
        0 => (0..1001).map(|number| tool(&format!("t{number}"), "")).collect(),
        1 => vec![tool(TOOL, "first"), tool(TOOL, "second")],
        2 => ["fs.read", "spawn", "http.get", "", "a b", "a:b", "../x", "\u{202e}x", "x\n"]
            .map(|name| tool(name, ""))
            .into(),
        3 => {
            let mut large = tool(TOOL, &"d".repeat(100_000));
            large["inputSchema"]["title"] = json!("s".repeat(100_000));
            vec![large, tool("small", "")]
        }
        4 => {
            let mut many = tool(TOOL, "");
            many["inputSchema"]["enum"] = json!(vec![0; 30_000]);
            vec![many.clone(), with(&many, "b"), with(&many, "c")]
        }
        _ => {
            let twice = json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}], "pattern": "(a+)+$", "$id": "http://127.0.0.1:1/"});
            vec![json!({"name": TOOL, "inputSchema": twice}), json!({"name": 1}), Value::Null]
        }
    };
    json!({"tools": listed, "nextCursor": if dice.below(4) == 0 { json!("again") } else { Value::Null }})
}

fn with(tool: &Value, name: &str) -> Value {
    let mut tool = tool.clone();
    tool["name"] = json!(name);
    tool
}

fn flood(dice: &mut Dice, most: usize) -> Vec<u8> {
    let told = match dice.below(4) {
        0 => json!({"method": "notifications/tools/list_changed"}),
        1 => json!({"method": "notifications/message", "params": {"level": "info", "data": "x"}}),
        2 => json!({"method": "notifications/progress", "params": {"progressToken": 0, "progress": 1}}),
        _ => json!({"method": "notifications/unknown", "params": {"a": [1, {"b": null}]}}),
    };
    let mut told = told;
    told["jsonrpc"] = json!("2.0");
    line(&told).repeat(1 + dice.below(most))
}

fn questions(dice: &mut Dice, most: usize) -> Vec<u8> {
    let method =
        ["ping", "sampling/createMessage", "roots/list", "elicitation/create", "tools/list"][dice.below(5)];
    let repeats = dice.below(4) == 0;
    let question = |number: usize| {
        let id = if repeats { json!(7) } else { json!(format!("q{number}")) };
        line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}}))
    };
    (0..=dice.below(most)).flat_map(question).collect()
}

fn cancelled(asked: &Value, dice: &mut Dice) -> Vec<u8> {
    let id = if dice.below(2) == 0 { asked["id"].clone() } else { strange(dice) };
    line(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "no"}}),
    )
}

/// A result of another kind than the requested one.
fn result(dice: &mut Dice) -> Value {
    match dice.below(8) {
        0 => json!({"content": [{"type": "text", "text": "x".repeat(2 << 20)}]}),
        1 => json!({"content": [{"type": "image", "mimeType": "x", "data": "AAAA"}, {"type": "unknown"}]}),
        2 => json!({"content": [], "structuredContent": {"a": vec![1; 20_000]}}),
        3 => json!({"content": "text", "isError": "yes"}),
        4 => json!({"content": [{"type": "text", "text": "\u{1b}[2J\u{0}"}], "isError": true}),
        5 => json!({"protocolVersion": "9999-01-01", "capabilities": [], "serverInfo": null}),
        6 => json!({"roots": []}),
        _ => strange(dice),
    }
}

fn error(dice: &mut Dice) -> Value {
    match dice.below(4) {
        0 => json!({"code": -32000, "message": "m".repeat(1 << 20)}),
        1 => json!({"code": i64::MAX, "message": ""}),
        2 => json!({"code": "x", "message": 5, "data": [[[]]]}),
        _ => strange(dice),
    }
}

/// Makes a few changes: bytes are replaced, doubled or removed, and pieces are moved.
pub fn mutated(mut body: Vec<u8>, dice: &mut Dice) -> Vec<u8> {
    for _ in 0..=dice.below(6) {
        if body.is_empty() {
            break;
        }
        let at = dice.below(body.len());
        match dice.below(6) {
            0 => body[at] = u8::try_from(dice.below(256)).expect("below 256"),
            1 => drop(body.remove(at)),
            2 => body.truncate(at.max(1)),
            3 => {
                let piece = body[at..(at + dice.below(200)).min(body.len())].repeat(1 + dice.below(50));
                body.splice(at..at, piece);
            }
            4 => {
                let inserted: [&[u8]; 8] =
                    [b"\n", b"\r\n", b"\0", b"\"", b"\\u0000", b"{\"a\":", b"\xef\xbb\xbf", b"-1e999"];
                body.splice(at..at, inserted[dice.below(8)].iter().copied());
            }
            _ => body.rotate_left(at),
        }
    }
    body
}
