// What agents, tools and users say is text, whatever it says: it opens no dialog, makes no element, follows no link, runs nothing.
import assert from "node:assert/strict";
import { Person } from "./page.mjs";

const RUNS = "globalThis.__hit=1;alert(1)";
const WORDS = [
    `<script>${RUNS}</script>`,
    `"><img src=x onerror="${RUNS}">`,
    `</pre></main></textarea></title></style><svg onload="${RUNS}"><animate onbegin="${RUNS}">`,
    `<a href="javascript:${RUNS}">javascript:${RUNS}</a> [x](javascript:${RUNS})`,
    "<base href=//evil.example/><meta http-equiv=refresh content=\"0;url=//evil.example/\"><link rel=stylesheet href=//evil.example/x.css>",
    `<iframe srcdoc="<script>${RUNS}</script>"></iframe><form action=//evil.example/><button>Press</button></form>`,
    "&lt;b&gt; &#x3c;b> \\u003cb> %3Cb%3E ${7*7} {{7*7}} <!--",
    "\u202eright to left\u202c \u2066isolated\u2069 \u200b\u200f\ufeff",
    "before\u0000after\u0007\u001b[31mred\u0085\u2028\u2029",
    "x".repeat(60_000),
    `${"<b>".repeat(300)}${"é".repeat(3000)}`,
];
/** Elements that no view makes. */
const MADE = "main script, main img, main iframe, main style, main link, main meta, main object, main embed, main b, main animate, main [onload], main [onerror], a[href^='javascript:'], [href*='evil.example'], [src*='evil.example'], [action*='evil.example'], main base";

export default async function hostile(place) {
    const { client } = place;
    const anna = await Person.enter(place, place.tokens.anna);
    const harmless = async () => {
        assert.equal(await anna.page.evaluate(() => globalThis.__hit), undefined);
        assert.equal(await anna.count(MADE), 0, `${anna.page.url()} has made ${await anna.find(MADE).evaluateAll((all) => all.map((one) => one.outerHTML.slice(0, 200)))}`);
        const wider = await anna.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wider <= 0, `${anna.page.url()} is ${wider} wider than its screen`);
    };
    const said = (text) => text.replace(/[\s\0]+/g, " ").trim().slice(0, 60);
    const shows = async (selector, words) => {
        const found = await anna.find(selector).first().evaluate((one) => one.textContent);
        assert.ok(said(found).includes(said(words).slice(0, 40)), `${anna.page.url()} ${selector}: ${said(found)}, not ${said(words)}`);
    };
    const bad = { agent_id: "bad", kind: "llm", model: "scripted", tools: ["fs.write", "ask_human"] };
    const runs = [];
    for (const [number, words] of WORDS.entries()) {
        const short = words.slice(0, 3000);
        await client.apply({ ...bad, description: short, system_prompt: short, script: [
            { say: words, call: [{ tool: "fs.write", arguments: { path: "outputs/page.html", content: words } }] },
            { say: words, call: [{ tool: "ask_human", arguments: { question: short, choices: [short.slice(0, 500), "other"] } }] },
            { say: `{last} ${words}` },
        ] });
        const trace = await client.submit({ goal: words, agent_id: "bad", child_id: "bad", labels: { number: `n${number}` } });
        runs.push({ trace, words, number });
    }
    for (const { trace } of runs) await client.reaches(trace, "input_required");

    // While they ask: live rows, cards, and the words on their buttons.
    await anna.go("", "#live:text('● live')");
    await harmless();
    for (const { trace, words } of runs) await shows(`#t-${trace} .goal`, words);
    await anna.go("questions", ".card");
    await harmless();
    for (const { trace, words } of runs) await shows(`.card:has(a[href='runs/${trace}'])`, words.slice(0, 3000).split("\n")[0]);
    await anna.go("agents", "#a-bad");
    await harmless();
    for (const { trace, words, number } of runs) {
        await anna.go(`runs/${trace}/contexts/bad`, "#live:text('● live')", "#e-1");
        await harmless();
        await shows(".facts .said", words);
        for (const one of await anna.find("summary").all()) await one.evaluate((summary) => { summary.parentNode.open = true; });
        await harmless();
        await shows("#e-1 pre", words);
        // Whoever looks sees the end come by itself.
        const { questions } = await client.ask("GET", "questions?limit=100");
        const asked = questions.find((one) => one.trace_id === trace);
        if (number % 2) await anna.go(`runs/${trace}`, "#live:text('● live')");
        await client.ask("POST", `runs/${trace}/contexts/bad/answers/${asked.number}`, { answer: asked.choices[0] });
        await anna.sees(".result pre");
        await harmless();
        for (const view of ["", "/timeline", "/contexts/bad"]) {
            await anna.go(`runs/${trace}${view}`, "#head .mark.good");
            await harmless();
        }
        await shows(".result pre", words);
        // What it wrote is a file to keep, not a page.
        const [download] = await Promise.all([anna.page.waitForEvent("download"), anna.find(".files a").click()]);
        assert.equal(download.suggestedFilename(), "page.html");
    }
    // In the address, too.
    for (const words of WORDS.slice(0, 7)) {
        await anna.go(`?agent_id=${encodeURIComponent("x")}&label=${encodeURIComponent(`a=${words}`)}`).catch(() => {});
        await harmless();
    }
    await anna.leave();
}
