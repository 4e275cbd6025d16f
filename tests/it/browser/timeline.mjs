// The graph of a run, and its timeline: a part of it is looked at closer by dragging over it, and all of it by a double click.
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
    assert.equal(await anna.count(".graph .edge"), 2);
    assert.deepEqual(await anna.find(".graph text.step").allTextContents(), ["✓ one", "✓ two", "✓ three"]);
    await anna.find(".graph a:has-text('one')").click();
    await anna.sees(".journal #e-1");
    await anna.page.goBack();

    // Chosen steps of it run again, and what they need is taken over.
    await anna.go(`runs/${trace}`);
    assert.equal(await anna.count("#actions > button:text-is('Rerun')"), 0, "nothing of it failed");
    await anna.find("#actions summary").click();
    await anna.find("[name='rerun.from']").selectOption(["three"]);
    await anna.find("#actions form button").click();
    await until("another run is shown", () => !anna.page.url().includes(trace) && anna.page.url().includes("runs/"));
    await anna.sees("#head .mark.good");

    // The timeline of a run that goes on is drawn again.
    const asks = await client.submit({ goal: "Wait for me", agent_id: "ask", child_id: "asks", inputs: { question: "Now?" } });
    await client.reaches(asks, "input_required");
    await anna.go(`runs/${asks}/timeline`, "#head .mark.asks", "#live:text('● live')");
    assert.ok(await anna.find("#whole").isHidden());
    // Whoever looks closer looks at the same part of the run still when it is drawn again.
    await anna.page.evaluate(() => { zoom(0, 5000); document.querySelector(".timeline").classList.add("old"); });
    await until("it is drawn again", async () => (await anna.count(".timeline.old")) === 0);
    const seen = Number((await anna.find(".timeline svg").first().getAttribute("viewBox")).split(" ")[2]);
    assert.ok(seen < 5000, `the run is longer now, and half of it then is ${seen} of 10000`);
    await anna.find("#whole").click();
    assert.ok(await anna.find("#whole").isHidden());
    await client.ask("POST", `runs/${asks}/contexts/asks/answers/1`, { answer: "yes" });
    await anna.sees("#head .mark.good");

    // An attempt that failed was not lost, and what stands beneath a graph is shown beneath it.
    const fails = await client.finish({ name: "fails", steps: [{ id: "never", agent_id: "fail", task_description: "Fail" }] });
    await anna.go(`runs/${fails}/timeline`, ".timeline rect.failed", ".timeline tr:has(th.d0) rect.waits", ".timeline th.d1:has-text('never')");
    assert.equal(await anna.count(".timeline rect.lost:not(.key rect)"), 0);

    const paid = await client.finish({ goal: "Pay", agent_id: "spend", inputs: { usd: 0.01, calls: 3 } });
    await anna.go(`runs/${paid}/timeline`, ".spent th:has-text('$0.03')", ".spent polyline");

    await anna.go(`runs/${trace}/timeline`);
    await anna.sees(".timeline rect.chat");
    // A call and a tool open their entries.
    const bars = anna.find(".timeline a:has(rect.tool)");
    assert.equal(await bars.count(), 1, "the script calls one tool");
    await bars.click({ force: true });
    await anna.sees("#e-2:target .what:text('tool')");
    await anna.page.goBack();
    await anna.sees(".timeline a:has(rect.chat)");
    const plot = anna.find(".timeline svg").first();
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
    assert.ok(anna.page.url().endsWith("/timeline"), "whoever drags over a bar opens nothing");
    // To the left as to the right, and closer still.
    await drag(0.5, 0);
    near(await shown(), [2500, 2500]);
    const all = new Set(await anna.find(".timeline svg").evaluateAll((plots) => plots.map((plot) => plot.getAttribute("viewBox"))));
    assert.equal(all.size, 1, "all rows show the same time");
    await plot.dblclick();
    await until("all is shown again", async () => (await shown())[2] === 10000);
    await anna.leave();
}
