// Every view of the page: its address, and the elements that must be visible there. A new view is a
// new row of the table.
import { Person, until } from "./page.mjs";

/** An agent that calls a tool, writes a file and reports, as a script without a model. */
export const WRITER = {
    agent_id: "writer", kind: "llm", model: "scripted", description: "Writes a page about anything.", system_prompt: "You write.", tools: ["fs.write"],
    script: [
        { say: "First the file.", call: [{ tool: "fs.write", arguments: { path: "outputs/ants and bees.md", content: "# Ants" } }] },
        { say: "It is written." },
    ],
};
const GRAPH = {
    name: "report", mode: "parallel", labels: { team: "research" },
    steps: [
        { id: "left", agent_id: "writer", task_description: "Write the left half" },
        { id: "right", agent_id: "echo", task_description: "Write the right half" },
        { id: "both", agent_id: "echo", task_description: "Put them together", depends_on: ["left", "right"] },
    ],
};

/** Creates the runs and definitions that the views show. */
export async function furnish({ client }) {
    await client.apply(WRITER);
    const graph = await client.finish(GRAPH);
    const written = await client.finish({ goal: "Write about ants", agent_id: "writer", child_id: "ants" });
    const asks = await client.submit({ goal: "Paint the fence", agent_id: "ask", inputs: { question: "Which colour?\nIt is a long fence.", form: { choices: ["red", "blue"] } } });
    const sleeps = await client.submit({ goal: "Sleep well", agent_id: "sleep", child_id: "sleeper", inputs: { ms: 3_600_000 }, labels: { team: "night" } });
    await client.ask("PUT", "schedules/nightly", { name: "nightly", cron: "30 2 * * mon-fri", time_zone: "Europe/Berlin", task: { goal: "Report", agent_id: "echo" } });
    await client.ask("POST", "runs", { goal: "" }, 422);
    await client.reaches(asks, "input_required");
    await client.reaches(sleeps, "working");
    await until("the letter is stored", async () => (await client.ask("GET", "dead")).letters.length);
    return { graph, written, asks, sleeps };
}

/** The table. `isLive`: the view updates by itself. */
export const VIEWS = ({ graph, written, asks, sleeps }) => [
    { path: "", sees: ["h1:text('Runs')", `#t-${graph} .labels:has-text('team=research')`, `#t-${sleeps} .mark.busy`, `#t-${asks} .asks`], isLive: true },
    { path: "?label=team%3Dnight", sees: [`#t-${sleeps}`, "a:text('Clear')"], isLive: true },
    { path: "?status=failed&status=timed_out&status=aborted", sees: [".views [aria-current]:text('Failed')"] },
    { path: `runs/${written}/contexts/ants/entries/1`, sees: ["h1:text('Entry 1 of ants')", ".prompt summary:has-text('system')", "h2:has-text('calls fs.write')"] },
    { path: `runs/${written}/contexts/ants/entries/2`, sees: ["h1:text('Entry 2 of ants')", "h2:text('called with')", "a:text('Entry 1')"] },
    { path: "?label=team%3Dnobody", sees: ["text=No run matches."] },
    { path: `runs/${graph}`, sees: [".views a:text('Graph')", ".row:has-text('left')", "#head .mark.good"] },
    { path: `runs/${graph}/graph`, sees: [".graph text:has-text('both')", ".views [aria-current]:text('Graph')"] },
    { path: `runs/${graph}/timeline`, sees: [".timeline th:has-text('left')", ".timeline rect.attempt", ".legend"] },
    { path: `runs/${graph}/money`, sees: [".books text:has-text('report')", "#at", "caption:has-text('Spent and held money')", ".views [aria-current]:text('Money')"] },
    { path: `runs/${graph}/money?at=1`, sees: ["output:has-text('of')", "a:text('Now')"] },
    { path: `runs/${sleeps}/money`, sees: [".list th:has-text('sleeper')"], isLive: true },
    { path: `runs/${graph}/receipt`, sees: [".list th:has-text('left')", "h2:text('By model')", ".sum a:text('As JSON')", ".views [aria-current]:text('Receipt')"] },
    { path: `runs/${graph}/events`, sees: ["[id^=event-]", ".sum a:text('as JSON')", ".list td:has-text('settled')", ".views [aria-current]:text('Events')"] },
    { path: `runs/${written}/files`, sees: ["h2:has-text('ants')", ".files a[download]", ".files a:text('ants and bees.md')"] },
    { path: `runs/${written}/contexts/ants/files/ants%20and%20bees.md`, sees: ["pre:text('# Ants')", "a:text('Save')"] },
    { path: `runs/${sleeps}`, sees: ["#r-sleeper .now:has-text('runs on')", "#actions button:text('Cancel')", "#actions summary:text('Raise')"], isLive: true },
    { path: `runs/${sleeps}/contexts/sleeper`, sees: ["h1:text('sleeper')", "form.tell", "#actions button:text('Cancel')"], isLive: true },
    { path: `runs/${written}/contexts/ants`, sees: [".journal #e-1", ".journal li:has-text('fs.write')", ".files a[download]", ".result pre:text('It is written.')"] },
    { path: "questions", sees: ["h2:text('Which colour?')", "button:text('red')", "text=It is a long fence."] },
    { path: "workers", sees: ["caption", ".list tbody th", "button:has-text('Drain')"] },
    { path: "operations", sees: ["h2:text('Findings')", ".findings li:has-text('coordinators')", ".list caption", "h2:text('Queues')", "h2:text('Streams')"] },
    { path: "?q=fence", sees: [`#t-${asks}`] },
    { path: "agents", sees: ["#a-writer :text('Writes a page')", "h2:text('Built in')"] },
    { path: "schedules", sees: [".list th:has-text('nightly')", "code:text('30 2 * * mon-fri')"] },
    { path: "dead", sees: [".list th:has-text('submit')", ".list td .said"] },
    { path: "dead?kind=nothing", sees: ["text=No letter matches."] },
];

export default async function views(place) {
    const made = await furnish(place);
    const anna = await Person.enter(place, place.tokens.anna);
    for (const { path, sees, isLive } of VIEWS(made)) {
        await anna.go(path, "main#main", "header.top .who:text('anna')", ...sees);
        if (isLive) await anna.sees("#live:text('● live')");
        await anna.isAccessible();
    }
    // Opens all folded parts.
    await anna.go(`runs/${made.written}/contexts/ants`);
    for (const one of await anna.find("summary").all()) await one.click();
    await anna.sees(".journal pre:has-text('# Ants')");
    await anna.isAccessible();
    const [download] = await Promise.all([anna.page.waitForEvent("download"), anna.find(".files a[download]").click()]);
    if (download.suggestedFilename() !== "ants and bees.md") throw new Error(`the name of the file is ${download.suggestedFilename()}`);
    await place.client.ask("POST", `runs/${made.sleeps}/cancel`, {});
    await anna.leave();
}
