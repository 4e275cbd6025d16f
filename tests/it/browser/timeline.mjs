// The graph of a run and its timeline. Dragging, buttons and keys zoom into a part; a double click
// shows everything again.
import assert from "node:assert/strict";
import { Person, until } from "./page.mjs";
import { WRITER } from "./views.mjs";

export default async function timeline(place) {
    const { client } = place;
    await client.apply(WRITER);
    const trace = await client.finish({ name: "chart", mode: "sequential", steps: [
        { id: "one", agent_id: "writer", task_description: "Write one" },
        { id: "two", agent_id: "sleep", task_description: "Wait a little" },
        { id: "three", agent_id: "echo", task_description: "Say three" },
    ] });
    const anna = await Person.enter(place, place.tokens.anna);
    await anna.go(`runs/${trace}`);
    await anna.find(".views a:text('Graph')").click();
    await anna.sees(".graph .card.good");
    assert.equal(await anna.count(".graph > svg .edge"), 2);
    assert.deepEqual(await anna.find(".graph text.step").allTextContents(), ["✓ one", "✓ two", "✓ three"]);
    await anna.find(".graph a:has-text('one')").click();
    await anna.sees(".journal #e-1");
    await anna.page.goBack();

    // Chosen steps of the run run again, and their inputs are taken over.
    await anna.go(`runs/${trace}`);
    assert.equal(await anna.count("#actions > button:text-is('Rerun')"), 0, "no step of the run failed");
    await anna.find("#actions summary").click();
    await anna.find("[name='rerun.from']").selectOption(["three"]);
    assert.match(await anna.replying("", () => anna.find("#actions form button").click()), /Run these steps/);
    await until("another run is shown", () => !anna.page.url().includes(trace) && anna.page.url().includes("runs/"));
    await anna.sees("#head .mark.good");

    // The timeline of a running agent is redrawn.
    const asks = await client.submit({ goal: "Wait for me", agent_id: "ask", child_id: "asks", inputs: { question: "Now?" } });
    await client.reaches(asks, "input_required");
    await anna.go(`runs/${asks}/timeline`, "#head .mark.asks", "#live:text('● live')");
    assert.deepEqual(await able(anna), ["closer"], "the other buttons are disabled");
    // A wait for a human is hatched.
    assert.match(await anna.find(".timeline rect.human").evaluate((bar) => getComputedStyle(bar).fill), /url\(.*#row-human/);
    assert.match(await anna.find(".timeline rect.human title").textContent(), /^waits for a human, /);
    await client.ask("POST", `runs/${asks}/contexts/asks/answers/1`, { answer: "yes" });
    await anna.sees("#head .mark.good");
    // A zoomed view keeps its time range and its focus across redraws. It is redrawn while an agent
    // works.
    const works = await client.submit({ goal: "Sleep", agent_id: "sleep", child_id: "sleeps", inputs: { ms: 3_600_000 } });
    await client.reaches(works, "working");
    await anna.go(`runs/${works}/timeline`, "#head .mark.busy", "#live:text('● live')");
    await until("the run is long enough", () => anna.page.evaluate(() => lasted() > 2000));
    await anna.find("[data-look=closer]").press("Enter");
    await anna.page.evaluate(() => { look(100, 600); document.querySelector(".timeline").classList.add("old"); });
    await until("the timeline is drawn again", async () => (await anna.count(".timeline.old")) === 0);
    assert.deepEqual(await anna.page.evaluate(() => looked), { from: 100, to: 600 });
    const [, , seen] = (await anna.find(".timeline td svg").first().getAttribute("viewBox")).split(" ");
    assert.equal(Math.round(seen), Math.round(500 / (await anna.page.evaluate(() => lasted())) * 10000));
    assert.equal(await anna.page.evaluate(() => document.activeElement.dataset.look), "closer");
    await anna.find("[data-look=whole]").click();
    assert.deepEqual(await able(anna), ["closer"]);
    await client.ask("POST", `runs/${works}/cancel`, {});
    await anna.sees("#head .mark:has-text('cancelled')");

    // A failed attempt is not shown as lost, and the children of a graph are shown below it.
    const fails = await client.finish({ name: "fails", steps: [{ id: "never", agent_id: "fail", task_description: "Fail" }] });
    await anna.go(`runs/${fails}/timeline`, ".timeline rect.failed", ".timeline tr:has(th.d0) rect.agents", ".timeline tr:has(th.d1) rect.retry", ".timeline th.d1:has-text('never')");
    assert.equal(await anna.count(".timeline rect.lost:not(.key rect)"), 0);

    const paid = await client.finish({ goal: "Pay", agent_id: "spend", inputs: { usd: 0.01, calls: 3 } });
    await anna.go(`runs/${paid}/timeline`, ".spent th:has-text('$0.03')", ".spent polyline");

    await anna.go(`runs/${trace}/timeline`);
    await anna.sees(".timeline rect.chat");
    // A call and a tool open their journal entries.
    const bars = anna.find(".timeline a:has(rect.tool)");
    assert.equal(await bars.count(), 1, "the script calls one tool");
    await bars.click({ force: true });
    await anna.sees("#e-2:target .what:text('tool')");
    await anna.page.goBack();
    await anna.sees(".timeline a:has(rect.chat)");
    const plot = anna.find(".timeline td svg").first();
    const shown = async () => (await plot.getAttribute("viewBox")).split(" ").map(Number);
    assert.deepEqual(await shown(), [0, 0, 10000, 10]);
    const drag = async (from, to) => {
        const box = await plot.boundingBox();
        const y = box.y + box.height / 2;
        await anna.page.mouse.move(box.x + box.width * from, y);
        await anna.page.mouse.down();
        await anna.page.mouse.move(box.x + box.width * to, y, { steps: 4 });
        await anna.page.mouse.up();
    };
    const near = ([from, , width], wanted) => assert.ok(Math.abs(from - wanted[0]) < 100 && Math.abs(width - wanted[1]) < 100, `${[from, width]}, not ${wanted}`);
    await drag(0.25, 0.75);
    near(await shown(), [2500, 5000]);
    assert.ok(anna.page.url().endsWith("/timeline"), "a drag over a bar opens no page");
    // Drags work in both directions, and a second drag zooms further.
    await drag(0.5, 0);
    near(await shown(), [2500, 2500]);
    const all = new Set(await anna.find(".timeline td svg").evaluateAll((plots) => plots.map((plot) => plot.getAttribute("viewBox"))));
    assert.equal(all.size, 1, "all rows show the same time");
    await plot.dblclick();
    await until("the whole timeline is shown again", async () => (await shown())[2] === 10000);
    await looksWithoutAPointer(anna, shown);
    // The legend matches the rows: a lost attempt has a red edge, and each kind of wait its own
    // hatch.
    const style = (kind, name) => anna.find(`.legend rect.${kind}`).evaluate((key, name) => getComputedStyle(key)[name], name);
    assert.equal(await style("lost", "stroke"), await style("lost", "fill"));
    for (const kind of ["human", "agents", "retry", "paused"]) assert.match(await style(kind, "fill"), new RegExp(`#key-${kind}`));
    assert.equal(await anna.count("pattern"), 8, "once for the legend, once for all rows");
    await anna.leave();
}

/** The enabled buttons. */
const able = (anna) => anna.find("#looks button:enabled").evaluateAll((buttons) => buttons.map((button) => button.dataset.look));

/** The labels of the time axis above the rows. */
const axis = (anna) => anna.find(".axis .tick:not([hidden]) text").allTextContents();

async function looksWithoutAPointer(anna, shown) {
    await anna.page.evaluate(() => { document.querySelector(".timeline").dataset.lasts = "60000"; showLook(); });
    assert.deepEqual(await axis(anna), ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s", "60 s"]);
    assert.equal(await anna.find("#range").textContent(), "all of 60 s");
    await anna.page.evaluate(() => look(12_000, 31_000));
    assert.equal(await anna.find("#range").textContent(), "12 s to 31 s of 60 s");
    const [first, ...rest] = await axis(anna);
    assert.ok(rest.length >= 3 && rest.length < 8, `${first} ${rest}`);
    assert.notEqual(first, "0 s", "the label follows the zoom");
    assert.deepEqual(await able(anna), ["closer", "wider", "earlier", "later", "whole"]);
    // With buttons, and with keys.
    await anna.find("[data-look=whole]").press("Enter");
    assert.equal(await anna.page.evaluate(() => document.activeElement.dataset.look), "closer", "the button is disabled, so another one has the focus");
    await anna.page.keyboard.press("Enter");
    assert.deepEqual(await shown(), [2500, 0, 5000, 10]);
    for (const [look, wanted] of [["earlier", [0, 0, 5000, 10]], ["later", [2500, 0, 5000, 10]], ["wider", [0, 0, 10000, 10]]]) {
        await anna.find(`[data-look=${look}]`).press(" ");
        assert.deepEqual(await shown(), wanted, look);
    }
    await anna.find(".timeline th a").first().focus();
    for (const [key, wanted] of [["+", [2500, 0, 5000, 10]], ["ArrowLeft", [0, 0, 5000, 10]], ["ArrowRight", [2500, 0, 5000, 10]], ["-", [0, 0, 10000, 10]], ["+", [2500, 0, 5000, 10]], ["0", [0, 0, 10000, 10]]]) {
        await anna.page.keyboard.press(key);
        assert.deepEqual(await shown(), wanted, key);
    }
    for (let times = 0; times < 20; times++) await anna.page.keyboard.press("+");
    assert.deepEqual(await able(anna), ["wider", "earlier", "later", "whole"], "the closest zoom");
    await anna.page.keyboard.press("0");
    await anna.isAccessible();
}
