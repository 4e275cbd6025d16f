// The page's script: it updates the parts that the server has drawn, and sends the requests of
// buttons and forms. It generates no markup: everything that it shows is HTML from the server, or
// is set as text.
"use strict";

const $ = (id) => document.getElementById(id);

/** Returns the first element of a piece of HTML. */
function parsed(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
}

// A link of `trellis page` has a code after its `#`. The code is sent only here, once.
async function signIn() {
    const code = new URLSearchParams(location.hash.slice(1)).get("in");
    if (!code) return false;
    // A signed-in user keeps the session.
    const stays = !$("sign-in");
    history.replaceState(null, "", location.pathname + location.search);
    if (stays) return false;
    const answer = await fetch("sign-in", { method: "POST", body: new URLSearchParams({ code }), headers: { accept: "text/html" } });
    if (answer.ok || answer.redirected) location.replace(location.pathname + location.search);
    else document.body.replaceChildren(...new DOMParser().parseFromString(await answer.text(), "text/html").body.childNodes);
    return true;
}

// Running times.
const UNITS = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];
function lasts(seconds) {
    for (const [unit, name, next, small] of UNITS)
        if (seconds >= unit) return `${Math.floor(seconds / unit)} ${name} ${Math.floor((seconds % unit) / next)} ${small}`;
    return `${seconds} s`;
}
function tick() {
    for (const time of document.querySelectorAll("time[data-since]"))
        time.textContent = lasts(Math.max(0, Math.floor((Date.now() - time.dataset.since) / 1000)));
}

/** Marks a changed row for a moment. */
function glow(element) {
    element.classList.add("new");
    setTimeout(() => element.classList.remove("new"), 1200);
}

/** Returns a copy of a row without its times, which change on their own. */
function timeless(row) {
    const copy = row.cloneNode(true);
    for (const time of copy.querySelectorAll("time[data-since], .ago")) time.textContent = "";
    return copy;
}

/** Replaces an element. A focused link or button inside it keeps the focus. */
function swap(old, fresh) {
    const on = old.contains(document.activeElement) ? document.activeElement : null;
    const href = on?.getAttribute("href");
    old.replaceWith(fresh);
    if (!on) return;
    const same = (one) => (href ? one.getAttribute("href") === href : one.textContent === on.textContent);
    [...fresh.querySelectorAll("a, button")].find(same)?.focus({ preventScroll: true });
}

function replace(id, html) {
    const old = $(id);
    if (!old) return;
    const fresh = parsed(html);
    if (timeless(old).isEqualNode(timeless(fresh))) return;
    swap(old, fresh);
    // The head of a page changes all the time, so it is not marked.
    if (id !== "head") glow(fresh);
    tick();
}

/** Updates a list: its rows take their new order, and opened or loaded rows stay. */
function list({ id, html, items, more }) {
    const old = $(id);
    if (!old) return;
    const fresh = parsed(html);
    const rows = take(old, fresh).querySelector(":scope > ul");
    // A closed list has no rows to update.
    if (!items || !rows || rows.dataset.load) return;
    let at = rows.firstElementChild;
    const place = (item) => {
        if (item === at) at = at.nextElementSibling;
        else rows.insertBefore(item, at);
    };
    for (const [id, html] of items) {
        const there = $(id);
        const item = html === null ? there : there ? take(there, parsed(html)) : parsed(html);
        if (!item) continue;
        // The new element may have replaced the one at this position.
        if (there && there === at) at = item;
        if (!there) glow(item);
        place(item);
    }
    while (at) {
        const gone = at;
        at = at.nextElementSibling;
        gone.remove();
    }
    if (more) rows.append(parsed(more));
    tick();
}

/** Updates an item of the tree; the rows beneath it stay. */
function take(old, fresh) {
    const row = (item) => item.querySelector(":scope > .row, :scope > .fold > .row");
    const has = (item) => item.querySelector(":scope > ul") !== null;
    if (has(old) !== has(fresh)) {
        old.replaceWith(fresh);
        return fresh;
    }
    // A step has no id, so it is only replaced if it has changed.
    if (row(old).id) replace(row(old).id, row(fresh).outerHTML);
    else if (!row(old).isEqualNode(row(fresh))) row(old).replaceWith(row(fresh));
    return old;
}

/** Replaces the content of a part. A focused link in it keeps the focus. */
function part(place, html) {
    if (!place) return;
    const at = place.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const fresh = document.createElement("template");
    fresh.innerHTML = html;
    place.replaceChildren(fresh.content);
    if (at) [...place.querySelectorAll("a")].find((link) => link.getAttribute("href") === at)?.focus({ preventScroll: true });
}

// A slider shows an earlier state of the view without loading a new page.
let sliding;
document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-slide]");
    if (!form) return;
    const to = event.target.value;
    form.querySelector("output").textContent = `${to} of ${event.target.max}`;
    clearTimeout(sliding);
    sliding = setTimeout(async () => {
        stream?.close();
        // An earlier state has no live updates.
        delete $("part").dataset.live;
        $("live").textContent = "";
        const url = `${form.action}?${new URLSearchParams(new FormData(form))}`;
        const answer = await fetch(url, { headers: { accept: "text/html" } }).catch(() => null);
        if (!answer?.ok || form.elements.at.value !== to) return;
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const id of ["head", "part", "as-of"]) $(id)?.replaceChildren(...(fresh.getElementById(id)?.childNodes ?? []));
        history.replaceState(null, "", url);
        tick();
    }, 120);
});

let stream;
let retry;
/**
 * The version of the rows on the page. It becomes older than the head, because a refresh loads the
 * head without the rows.
 */
let version = $("head")?.dataset.version;
function watch() {
    stream?.close();
    clearTimeout(retry);
    const place = document.querySelector("[data-live^='runs/'], [data-live^='live?']");
    const lamp = $("live");
    if (!place) return;
    // The loaded lists, and the number of rows in each.
    const open = [...document.querySelectorAll("ul[data-rows]:not([data-load])")].map((list) => `${list.dataset.rows}:${list.querySelectorAll(":scope > li:not(.more)").length}`);
    const last = $("journal")?.lastElementChild?.id.slice(2);
    let url = place.dataset.live;
    if (version) url = url.replace(/version=\d+/, `version=${version}`);
    if (last) url = url.replace(/step=\d+/, `step=${last}`);
    stream = new EventSource(open.length ? `${url}&open=${encodeURIComponent(open.join(","))}` : url);
    const on = (name, act) => stream.addEventListener(name, (event) => act(JSON.parse(event.data)));
    stream.onopen = () => { lamp.textContent = "● live"; };
    // A broken stream is opened again, from the present state of the page. If the server rejects
    // it, the session may be over or the server full, so the next try waits longer.
    stream.onerror = () => {
        const refused = stream.readyState === EventSource.CLOSED;
        stream.close();
        lamp.textContent = refused ? "○ stopped" : "○ reconnecting";
        retry = setTimeout(again, refused ? 5000 : 1000);
    };
    on("row", ({ id, html }) => replace(id, html));
    on("head", ({ id, html }) => {
        const before = asks();
        replace(id, html);
        version = $("head").dataset.version;
        // A question was asked or answered, so the cards are loaded again.
        if ($("asked") && asks() !== before) renew();
    });
    on("list", list);
    on("words", ({ id, text }) => { const now = $(id)?.querySelector(".now[data-live]"); if (now) now.textContent = text; });
    on("part", ({ id, html }) => part($(id), html));
    on("entry", ({ id, html }) => { if (!$(id)) { const entry = parsed(html); $("journal")?.append(entry); glow(entry); } });
    on("said", ({ text }) => { if ($("words")) $("words").textContent = text; });
    on("new", (count) => { const news = $("news"); if (!news) return; news.hidden = count === "0"; news.replaceChildren(Object.assign(document.createElement("a"), { href: location.href, textContent: `${count} new` })); });
    on("gone", ({ id }) => { $(id)?.classList.add("gone"); });
    on("reload", () => location.reload());
    on("end", () => {
        stream.close();
        lamp.textContent = "";
        // The playground's page does not show a run of its own, so there is nothing to refresh.
        if (!$("played")) return void refresh();
        const link = $("played").querySelector("a");
        if (link && url.startsWith(`${link.getAttribute("href")}/`)) $("played").lastChild.textContent = " has ended.";
    });
}

/** The hash of the open questions and paused budgets in the head. */
const asks = () => $("head")?.dataset.asks;

/**
 * Returns true if the user is typing in a part or reading it. A pressed button or a sent form does
 * not count.
 */
function isBusy(part) {
    const isTyped = [...part.querySelectorAll("input:enabled, textarea:enabled")].some((field) => field.value !== field.defaultValue || field.checked !== field.defaultChecked);
    const isRead = [...part.querySelectorAll("details[open]")].some((details) => !details.closest("[data-sent]") && !details.querySelector("[data-sent]"));
    return isTyped || isRead || part.querySelector(":is(input, select, textarea):focus") !== null;
}

/**
 * Replaces the cards of open requests. A card that is still there stays as it is, with the text
 * typed into it.
 */
function keepCards(old, fresh) {
    const on = document.activeElement;
    const key = (card) => card.querySelector("article").getAttribute("aria-labelledby");
    const there = new Map([...old.querySelectorAll(".card")].map((card) => [key(card), card]));
    for (const card of fresh.querySelectorAll(".card")) if (there.has(key(card))) card.replaceWith(there.get(key(card)));
    old.replaceChildren(...fresh.childNodes);
    if (old.contains(on)) on.focus({ preventScroll: true });
}

/** Loads the cards again, until that succeeds. */
async function renew() {
    if (!(await refresh(["asked"]))) setTimeout(renew, 3000);
}

/**
 * Loads the view again and replaces the parts that change at the end. Rows that the user opened
 * stay.
 */
async function refresh(parts = ["head", "asked", "actions", "result", "files"]) {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
    if (answer?.status === 401) return location.reload();
    if (!answer?.ok) return false;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts) {
        const [old, now] = [$(part), fresh.getElementById(part)];
        if (!old || !now) continue;
        if (part === "asked") keepCards(old, now);
        else if (!isBusy(old)) old.replaceWith(now);
    }
    // Appends new entries only if none is missing before them; the stream delivers missing ones.
    const [number, entries] = [(entry) => Number(entry?.id.slice(2) ?? 0), fresh.querySelectorAll("#journal > li")];
    if (number(entries[0]) <= number($("journal")?.lastElementChild) + 1) for (const entry of entries) if (!$(entry.id)) $("journal")?.append(entry);
    // An ended agent can't be restored.
    const restore = '#journal [data-post$="/restore"]';
    if (!fresh.querySelector(restore)) for (const button of document.querySelectorAll(restore)) button.remove();
    tick();
    return true;
}

async function again() {
    // An ended run does not change.
    if (!document.querySelector("[data-live]")) return;
    // The rows are outdated until the stream is open.
    $("live").textContent = "○ reconnecting";
    await refresh();
    if (!document.hidden) watch();
}

// A browser has few connections per server, so a hidden page closes its stream.
document.addEventListener("visibilitychange", () => {
    if (document.hidden) stream?.close();
    else again();
});

async function load(list, url) {
    if (list.dataset.loading) return;
    list.dataset.loading = "yes";
    const answer = await fetch(url, { headers: { accept: "text/html" } }).catch(() => null);
    if (answer?.status === 401) return void location.reload();
    delete list.dataset.loading;
    if (!answer?.ok) {
        $("live").textContent = "○ these rows could not be loaded; try again";
        return;
    }
    list.querySelector(":scope > .more")?.remove();
    const rows = document.createElement("template");
    rows.innerHTML = await answer.text();
    list.append(rows.content);
    delete list.dataset.load;
    tick();
    watch();
}

// Sends a request. An error is shown beside its button; after a success, a form can't be sent
// again.
async function post(place, controls, url, body, done, go, method = "POST") {
    for (const control of controls) control.disabled = true;
    const answer = await fetch(url, { method, body, headers: { "content-type": "application/json" } }).catch(() => null);
    const told = await answer?.json().catch(() => null);
    if (answer?.ok && go && told) return void location.assign(go + told.trace_id);
    for (const control of controls) control.disabled = Boolean(answer?.ok && done);
    let said = place.querySelector(".told");
    if (!said) place.append(said = Object.assign(document.createElement("p"), { className: "told" }));
    said.setAttribute("role", "alert");
    said.dataset.at = Date.now();
    const problems = (told?.problems ?? []).map(({ message }) => message).filter((message) => !told.detail.includes(message));
    const isLate = url.includes("/answers/") && (answer?.status === 404 || answer?.status === 409);
    const why = told && [isLate && "The question was already answered, or is no longer open", told.detail, ...problems, told.hint].filter(Boolean).join(": ");
    said.textContent = answer?.ok ? done ?? "Done." : why ?? "The server can't be reached.";
    // The disabled control had the focus, which moves to the result.
    if (answer?.ok && done) { place.dataset.sent = ""; said.tabIndex = -1; said.focus(); }
    if (answer?.ok) count();
    return Boolean(answer?.ok);
}
function send(button, url, body) {
    const { go, method } = button.dataset;
    return post(button.parentNode, [button], url, method === "DELETE" ? undefined : body, method && "Done.", go, method);
}

/**
 * Builds the body of a form. Fields of one name are joined with a colon, and `a.b` is placed within
 * `a`. A form with `data-body` leaves out its empty fields.
 */
function bodyOf(form, fields) {
    const body = JSON.parse(form.dataset.body ?? "{}");
    for (const name of new Set(fields.keys())) {
        const text = fields.getAll(name).filter((value) => value.trim()).join(": ");
        if (!text && form.dataset.body) continue;
        const path = name.split(".");
        const last = path.pop();
        const place = path.reduce((within, part) => (within[part] ??= {}), body);
        const field = form.elements[name];
        place[last] = field?.multiple ? fields.getAll(name) : field?.type === "number" ? Number(text) : text;
    }
    return JSON.stringify(body);
}

/** Builds the JSON answer from the fields of a schema. Empty fields of an object are left out. */
function answerOf(form) {
    const value = ({ value, dataset: { kind } }) => (kind === "text" ? value : kind === "number" ? Number(value) : JSON.parse(value));
    const fields = [...form.elements].filter((field) => field.dataset.kind);
    if (form.dataset.fields === "value") return JSON.stringify({ answer: JSON.stringify(value(fields[0])) });
    const filled = fields.filter((field) => field.value !== "").map((field) => [field.dataset.key, value(field)]);
    return JSON.stringify({ answer: JSON.stringify(Object.fromEntries(filled)) });
}

// Empty filters are left out of the address. They are enabled again when the user comes back.
function leaveOut(form, isSent) {
    for (const field of form.elements) field.disabled = isSent && field.name !== "" && field.value === "";
}
document.addEventListener("submit", (event) => { if (event.target.matches(".filters")) leaveOut(event.target, true); });
addEventListener("pageshow", () => { for (const form of document.querySelectorAll(".filters")) leaveOut(form, false); });

document.addEventListener("submit", async (event) => {
    const form = event.target;
    const { json, raw, done, again, go } = form.dataset;
    if (!json && !raw) return;
    event.preventDefault();
    const ask = event.submitter?.dataset.ask;
    if (ask && !confirm(ask)) return;
    if (raw) return void post(form, form.querySelectorAll("button, textarea"), raw, form.querySelector("textarea").value, "Sent.");
    const fields = new FormData(form, event.submitter);
    // All forms of one question are disabled together.
    const place = form.closest(".answers") ?? form;
    const controls = place.querySelectorAll("button, input, select, textarea");
    const sent = await post(place, controls, json, form.dataset.fields ? answerOf(form) : bodyOf(form, fields), again === undefined ? done ?? "Done." : undefined, go);
    if (sent && again !== undefined) form.reset();
    // An answered question hides its forms.
    if (sent && place !== form) for (const answered of place.querySelectorAll("form")) answered.hidden = true;
});

document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const list = $(button.getAttribute("aria-controls"));
    if (list) {
        list.hidden = !list.hidden;
        button.setAttribute("aria-expanded", String(!list.hidden));
        if (list.dataset.load) load(list, list.dataset.load);
    }
    const { post, body, ask, more, branch } = button.dataset;
    if (branch) {
        const form = document.querySelector("details.branch form");
        form.closest("details").open = true;
        form.elements["branch_from.step"].value = branch;
        form.elements.goal.focus();
    }
    if (post && (!ask || confirm(ask))) send(button, post, body ?? "{}");
    if (more) load(button.closest("ul"), more);
});

// Draws the view of a live run again if it has no stream. The longer that takes, the longer the
// pause. A zoomed timeline keeps its range.
let drawn;
function redraw(pause, isThere = true) {
    const isLive = $("part")?.hasAttribute("data-redraw");
    if ($("part") && !document.querySelector("[data-live]")) $("live").textContent = isLive ? (isThere ? "● live" : "○ reconnecting") : "";
    if (!isLive) return;
    setTimeout(async () => {
        const began = performance.now();
        // Waits while the user drags, or selects text to copy it.
        const isMarked = () => !getSelection().isCollapsed && $("part").contains(getSelection().anchorNode);
        const isFree = () => !document.hidden && !drag && !isMarked();
        if (isFree()) {
            // With an `ETag`, the server does not generate an unchanged view again.
            const answer = await fetch(location.href, { headers: { accept: "text/html", ...(drawn && { "if-none-match": drawn }) }, cache: "no-store" }).catch(() => null);
            if (answer?.status === 401) return void location.reload();
            isThere = answer?.ok || answer?.status === 304;
            const fresh = answer?.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
            if (fresh?.getElementById("part") && isFree()) {
                for (const id of ["head", "part"]) swap($(id), fresh.getElementById(id));
                showLook();
                drawn = answer.headers.get("etag");
            }
            tick();
        }
        redraw(Math.max(3000, 10 * (performance.now() - began)), isThere);
    }, pause);
}

// The playground: the server checks, draws and plans the typed graph.
let checking;
let typed = 0;
async function check(fail) {
    const mine = ++typed;
    const answer = await fetch("playground/check", { method: "POST", body: JSON.stringify({ text: $("graph-text").value, fail: fail || null }), headers: { "content-type": "application/json" } }).catch(() => null);
    const told = answer?.ok ? await answer.json().catch(() => null) : null;
    if (mine !== typed) return null;
    $("played").textContent = told ? "" : "The graph could not be checked: the server can't be reached, or refuses it.";
    $("run-graph").disabled = !told?.graph;
    if (!told) return null;
    part($("checked"), told.checked);
    if (!$("part").dataset.live) part($("part"), told.drawn);
    const [list, chosen] = [$("fail-step"), $("fail-step").value];
    list.replaceChildren(list.firstElementChild, ...told.steps.map((step) => new Option(step, step, false, step === chosen)));
    return told;
}
async function play() {
    // The check runs now, so the scheduled one is cancelled.
    clearTimeout(checking);
    const [said, fail] = [$("played"), $("fail-step").value];
    // A second press of the button does not start a second run.
    $("run-graph").disabled = true;
    const json = { "content-type": "application/json" };
    const told = await check(fail);
    if (!told?.graph) return;
    $("run-graph").disabled = true;
    said.textContent = "Submitting…";
    const answer = await fetch("v1/runs", { method: "POST", body: JSON.stringify(told.graph), headers: json }).catch(() => null);
    const got = await answer?.json().catch(() => null);
    $("run-graph").disabled = false;
    if (!answer?.ok) return void (said.textContent = got ? [got.detail, got.hint].filter(Boolean).join(": ") : "The server can't be reached.");
    const link = Object.assign(document.createElement("a"), { href: `runs/${got.trace_id}`, textContent: `Run ${got.trace_id.slice(0, 8)}` });
    said.replaceChildren(link, " was submitted; the graph follows it.");
    $("part").dataset.live = `runs/${got.trace_id}/graph/live`;
    watch();
}
if ($("playground")) {
    const text = $("graph-text");
    text.addEventListener("input", () => {
        // The typed graph is drawn again, and the stream of the last run is closed.
        stream?.close();
        delete $("part").dataset.live;
        $("head").replaceChildren();
        clearTimeout(checking);
        checking = setTimeout(check, 300);
    });
    $("open-file").addEventListener("change", async (event) => {
        const [file] = event.target.files;
        if (file) text.value = await file.text();
        text.dispatchEvent(new Event("input", { bubbles: true }));
    });
    $("run-graph").addEventListener("click", play);
    $("checked").addEventListener("click", (event) => {
        const line = Number(event.target.closest("[data-line]")?.dataset.line);
        if (!line) return;
        const lines = text.value.split("\n");
        const from = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
        text.focus();
        text.setSelectionRange(from, from + (lines[line - 1]?.length ?? 0));
    });
    check();
}

const KEYS = "Keys:\n/ search\nj, k next and previous row\nEnter open\nEsc up: from an agent to its run, from a run to the list\nc cancel the open run or agent (asks first)\n? this help\nOn a timeline: + zoom in, - zoom out, ← earlier, → later, 0 everything";
/** Goes to the page above. If the user came from there, the browser goes back to its old state. */
function up() {
    const link = document.querySelector("[data-up]");
    // Leaving would discard the typed graph.
    if (!link || $("playground")) return;
    const cameFrom = document.referrer.split(/[?#]/)[0] === link.href;
    if (cameFrom && globalThis.navigation?.canGoBack) history.back();
    else location.assign(link.href);
}
document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    const links = [...document.querySelectorAll(".runs .goal, .tree .name[href], .card .name, .list th a")].filter((link) => link.offsetParent);
    const at = links.indexOf(document.activeElement);
    // Without a focused link, the first visible one is next.
    const seen = links.findIndex((link) => link.getBoundingClientRect().top >= 0);
    const next = at < 0 ? seen : Math.min(at + 1, links.length - 1);
    const keys = {
        "/": () => $("search")?.focus(),
        j: () => links[next]?.focus(),
        k: () => links[at < 0 ? seen : Math.max(at - 1, 0)]?.focus(),
        Escape: up,
        c: () => document.querySelector('.actions [data-post$="/cancel"]')?.click(),
        "?": () => alert(KEYS),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
});

// Loads slow parts after the rest of the page.
async function later() {
    for (const place of document.querySelectorAll("[data-later]")) {
        const answer = await fetch(place.dataset.later, { headers: { accept: "text/html" } }).catch(() => null);
        if (answer?.ok) part(place, await answer.text());
    }
}

// Lists without a stream are loaded again from time to time, unless the user is working on them.
let listed;
let lookedAt = Date.now();
async function lookAgain() {
    const main = document.querySelector("main[data-refresh]");
    const isUsed = () => isBusy(main) || (main.contains(document.activeElement) && !document.activeElement.matches(".told"));
    if (!main || document.hidden || Date.now() - lookedAt < main.dataset.refresh * 1000 || isUsed()) return;
    const isRead = [...main.querySelectorAll(".told[data-at]")].some((said) => Date.now() - said.dataset.at < 6000);
    if (isRead) return;
    lookedAt = Date.now();
    const answer = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
    if (!answer?.ok || isUsed()) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    if (!fresh || fresh.innerHTML === listed) return;
    listed = fresh.innerHTML;
    main.replaceChildren(...fresh.childNodes);
    tick();
}

// Updates the number of open questions on every page. If they have changed, the list of questions
// is loaded again at once.
let waiting;
async function count() {
    const place = $("open-questions");
    if (!place || document.hidden) return;
    const answer = await fetch("questions/count").catch(() => null);
    const told = answer?.ok ? await answer.json().catch(() => null) : null;
    if (!told) return;
    place.textContent = told.questions ? `${told.questions}${told.are_all ? "" : "+"}` : "";
    if (waiting && waiting !== told.print && place.closest("[aria-current]")) lookedAt = 0;
    waiting = told.print;
}

signIn().then((signs) => { if (!signs) { tick(); setInterval(tick, 1000); watch(); redraw(3000); later(); count(); setInterval(count, 5000); setInterval(lookAgain, 1000); } });
