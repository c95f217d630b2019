// The console's page. Data of the cluster gets into the document as text, never as markup.

const POLL_MS = 2000;
const HISTORY_MS = 10000;
const ANSWER_MS = 9000;
const STALE_S = 20; // an older survey is not shown as the present state of the cluster
const MAX_ROWS = 2000;
const CHART = { height: 64, leastSteps: 30 };

const MODERATE = new Set(["lagging", "copying", "barred", "behind"]); // these states end by themselves
const RANKS = { critical: 0, warning: 1, well: 2 };

const byId = (id) => document.getElementById(id);
const numbers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });

const page = {
  number: 0, // number of the shown survey
  answer: null,
  answeredAt: 0,
  lost: null,
  partitions: [],
  cluster: null,
  open: null,
  detail: null,
  sort: { key: "health", ascending: true },
};
const rows = new Map(); // rows of the table, by partition

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function format(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 10 && !Number.isInteger(value) ? fine.format(value) : numbers.format(value);
}

const milliseconds = (value) => (value === null || value === undefined ? "–" : `${format(value)} ms`);
const seconds = (value) => (value === null || value === undefined ? "–" : `${format(value)} s`);
const mark = (value) => (value === -1 ? "empty" : format(value));
const plural = (count, noun) => `${format(count)} ${noun}${count === 1 ? "" : "s"}`;

function totalRate(partitions) {
  const rates = partitions.map((partition) => partition.rate).filter((rate) => rate !== null);
  return rates.length ? Math.round(rates.reduce((sum, rate) => sum + rate, 0)) : null;
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let place = 0;
  while (count >= 1024 && place < units.length - 1) {
    count /= 1024;
    place += 1;
  }
  return `${format(count >= 10 ? Math.round(count) : count)} ${units[place]}`;
}

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

async function ask(path) {
  const response = await fetch(path, { signal: AbortSignal.timeout(ANSWER_MS), cache: "no-store" });
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.json();
}

// What the server tells

async function poll() {
  if (document.hidden) return;
  try {
    const answer = await ask(`/console/cluster.json?after=${page.number}`);
    page.answer = { ...page.answer, ...answer };
    page.answeredAt = performance.now();
    page.lost = null;
    if (answer.cluster) {
      page.number = answer.number;
      take(answer.cluster);
    }
    showHere();
  } catch (error) {
    page.lost = error.name === "TimeoutError" ? "it does not answer" : "it cannot be reached";
  }
  showAge();
}

function take(cluster) {
  const columns = cluster.columns;
  const servers = new Map(cluster.servers.map((server) => [server.id, server]));
  page.partitions = cluster.partitions.map((values) => {
    const partition = Object.fromEntries(columns.map((name, place) => [name, values[place]]));
    partition.replicas = partition.replicas.map(([place, state, lag, lag_s]) => ({
      place, storage: cluster.storages[place].storage, state, lag, lag_s,
    }));
    partition.endpoint = servers.get(partition.owner)?.endpoint ?? null;
    partition.health = partition.severity ?? "well";
    partition.words = partition.problems.length ? partition.problems : lagging(partition);
    partition.searched = [
      `server ${partition.owner}`, partition.endpoint ?? "gone", partition.health, ...partition.words,
      ...partition.replicas.flatMap((replica) => [replica.storage, replica.state]),
    ].join(" ").toLowerCase();
    return partition;
  });
  setText(byId("name"), cluster.name);
  document.title = `${cluster.name} · Waltz`;
  page.cluster = cluster;
  showVerdict();
  showProblems(cluster);
  showNodes(cluster);
  showTable();
}

function lagging(partition) {
  const states = new Set(partition.replicas.map((replica) => replica.state).filter((state) => state !== "current"));
  return [...states].map((state) => `replica ${state}`);
}

// Top of the page

function showHere() {
  const { here, cluster, error } = page.answer;
  const where = cluster ? `${cluster.root} · ` : "";
  const version = here.version ? ` · Waltz ${here.version}` : "";
  setText(byId("about"), `${where}seen from ${here.endpoint}${version}`);
  const lines = [];
  if (!here.zookeeper) lines.push("This server has lost its connection to ZooKeeper.");
  if (error) lines.push(`The cluster could not be surveyed: ${error}.`);
  if (lines.length && cluster) lines.push("The page shows the last known state.");
  byId("trouble").hidden = !lines.length;
  setText(byId("trouble"), lines.join(" "));
}

function age() {
  const told = page.answer?.age_s;
  return told === null || told === undefined ? null : told + (performance.now() - page.answeredAt) / 1000;
}

function showAge() {
  const node = byId("age");
  const answer = page.answer;
  const seconds = age();
  let text = answer?.error ? "no survey has succeeded" : "asking the cluster …";
  let kind = "stale";
  if (seconds !== null) {
    text = `as of ${duration(seconds)} ago`;
    kind = seconds > STALE_S || answer.error ? "stale" : "";
  }
  if (page.lost) {
    text = `lost this server: ${page.lost}${answer ? `; ${text}` : ""}`;
    kind = "lost";
  }
  node.className = kind;
  setText(node, text);
  showVerdict();
}

function verdict() {
  const { cluster, partitions } = page;
  const count = partitions.length;
  const critical = partitions.filter((partition) => partition.health === "critical").length;
  const degraded = partitions.filter((partition) => partition.health === "warning").length;
  const worst = cluster.problems[0]?.severity ?? (degraded ? "warning" : "well");
  let text = count === 1 ? "The partition is well" : `All ${format(count)} partitions are well`;
  if (critical) text = `${format(critical)} of ${plural(count, "partition")} in trouble${degraded ? `, ${format(degraded)} degraded` : ""}`;
  else if (degraded) text = `${format(degraded)} of ${plural(count, "partition")} degraded; all take appends`;
  else if (worst !== "well") text += ", but not all nodes";
  if (page.answer?.hidden) text += `, of those that you may see (${format(page.answer.hidden)} are hidden)`;
  const rate = totalRate(partitions);
  return [rate === null ? text : `${text} · ${format(rate)} transactions/s`, worst];
}

// An old survey gives no verdict: there are no surveys while nobody watches.
function showVerdict() {
  if (!page.cluster) return;
  const seconds = age();
  const old = seconds === null || seconds > STALE_S;
  const [text, worst] = old ? [`Asking the cluster … The state below is ${duration(seconds ?? 0)} old.`, "unknown"] : verdict();
  document.body.classList.toggle("old", old);
  byId("verdict").className = worst;
  setText(byId("verdict"), text);
}

function showProblems(cluster) {
  byId("problems").replaceChildren(...cluster.problems.map((problem) => element(
    "li", {},
    element("span", { class: `tag ${problem.severity}` }, problem.severity),
    element("strong", {}, problem.text),
    problem.partitions ? element("button", { class: "link", type: "button", onclick: () => filterBy(problem.partitions) }, "show") : null,
    problem.detail ? element("span", { class: "detail" }, problem.detail) : null,
    element("span", { class: "detail" }, element("b", {}, "do: "), problem.do, ` (docs/runbook.md#${problem.section})`),
  )));
}

// Nodes

function replicaHealth(state) {
  if (state === "current") return "well";
  return MODERATE.has(state) ? "warning" : "critical";
}

function showNodes(cluster) {
  const owned = new Map();
  const held = cluster.storages.map(() => []);
  for (const partition of page.partitions) {
    if (!owned.has(partition.owner)) owned.set(partition.owner, []);
    owned.get(partition.owner).push([partition, partition.health, partition.words.join(", ") || "well"]);
    for (const replica of partition.replicas) held[replica.place].push([partition, replicaHealth(replica.state), replica.state]);
  }
  const here = page.answer.here.id;
  byId("servers").replaceChildren(...cluster.servers.map((server) => {
    const answers = server.version !== null;
    const squares = owned.get(server.id) ?? [];
    const rate = totalRate(squares.map(([partition]) => partition));
    const facts = [plural(squares.length, "partition"), `${format(rate)} transactions/s`];
    if (server.preferred) facts.push(`${format(server.preferred)} preferred`);
    if (answers) facts.push(`protocol ${server.version}`);
    facts.push(`id ${server.id}`);
    return node(`${server.endpoint}${server.id === here ? " (this one)" : ""}`, answers, facts, server.reason, squares);
  }));
  const gone = [...owned].filter(([id]) => id === null || !cluster.servers.some((server) => server.id === id));
  for (const [id, squares] of gone) {
    const title = id === null ? "no server" : `server ${id} is gone`;
    byId("servers").append(node(title, false, [plural(squares.length, "partition")], null, squares));
  }
  byId("storages").replaceChildren(...cluster.storages.map((storage, place) => {
    const facts = [storage.answers ? `${format(storage.online)} of ${plural(storage.assigned, "replica")} online` : plural(held[place].length, "replica")];
    if (Number.isFinite(storage.free_bytes)) facts.push(`${bytes(storage.free_bytes)} free`);
    if (storage.version) facts.push(`Waltz ${storage.version}`);
    if (storage.answers && !storage.ailments) facts.push("health not told");
    return node(storage.storage, storage.answers, facts, storage.reason, held[place], storage.ailments ?? []);
  }));
  drawMaps();
}

function node(title, answers, facts, reason, squares, ailments = []) {
  const bad = squares.filter(([, health]) => health !== "well").length;
  const status = !answers ? ["critical", "no answer"] : ailments.length ? ["warning", "not well"] : ["well", "answers"];
  const canvas = element("canvas", { role: "img", "aria-label": `${plural(squares.length, "partition")}, ${format(bad)} not well` });
  canvas.squares = squares;
  canvas.addEventListener("click", (event) => {
    const found = squareAt(canvas, event);
    if (found) show(found[0].id);
  });
  canvas.addEventListener("mousemove", (event) => {
    const found = squareAt(canvas, event);
    canvas.title = found ? `partition ${found[0].id}: ${found[2]}` : "";
  });
  return element(
    "li", { class: status[0] === "well" ? null : status[0] },
    element("div", { class: "title" }, element("b", {}, title), element("span", { class: `tag ${status[0]}` }, status[1])),
    element("div", { class: "facts" }, facts.join(" · ")),
    reason ? element("div", { class: "facts critical-text" }, reason) : null,
    ...ailments.map((text) => element("div", { class: "facts warning-text" }, text)),
    squares.length ? canvas : null,
  );
}

function squareAt(canvas, event) {
  const { columns, step } = canvas.grid ?? {};
  if (!columns) return null;
  const column = Math.floor(event.offsetX / step);
  return column < columns ? canvas.squares[Math.floor(event.offsetY / step) * columns + column] ?? null : null;
}

function drawMaps() {
  const style = getComputedStyle(document.documentElement);
  const colours = Object.fromEntries(["well", "warning", "critical"].map((name) => [name, style.getPropertyValue(`--square-${name}`)]));
  for (const canvas of document.querySelectorAll(".nodes canvas")) {
    const count = canvas.squares.length;
    const side = count > 300 ? 6 : count > 100 ? 8 : 11;
    const step = side + (side > 6 ? 3 : 2);
    const width = canvas.parentElement.clientWidth - 24;
    const columns = Math.max(1, Math.floor((width + step - side) / step));
    const height = Math.ceil(count / columns) * step;
    const ratio = window.devicePixelRatio || 1;
    canvas.grid = { columns, step };
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    canvas.squares.forEach(([, health], place) => {
      context.fillStyle = colours[health];
      context.fillRect((place % columns) * step, Math.floor(place / columns) * step, side, side);
    });
  }
}

// Table

const COLUMNS = [
  { key: "id", title: "Partition", text: (each) => String(each.id) },
  { key: "health", title: "Health", value: (each) => RANKS[each.health] },
  { key: "owner", title: "Owner", value: (each) => ownerText(each), text: (each) => ownerText(each) },
  { key: "replicas", title: "Replicas", value: (each) => each.replicas.filter((replica) => replica.state === "current").length - each.replicas.length },
  { key: "rate", title: "Commits/s", hint: "between the last two surveys", number: true, text: (each) => format(each.rate) },
  { key: "p99_ms", title: "p99", hint: "latency of appends in the last ten seconds; only for this server's partitions", number: true, wide: true, text: (each) => milliseconds(each.p99_ms) },
  { key: "lag", title: "Lag", hint: "committed transactions that the slowest replica does not have", number: true, wide: true, text: (each) => format(each.lag) },
  { key: "lag_s", title: "Late", hint: "minimum time since the commit of the oldest of these transactions", number: true, wide: true, text: (each) => seconds(each.lag_s) },
  { key: "feed_lag_s", title: "Clients late", hint: "minimum time since the commit of the oldest transaction that a client has requested, but not received", number: true, wide: true, text: (each) => seconds(each.feed_lag_s) },
  { key: "mark", title: "High-water mark", number: true, wide: true, text: (each) => mark(each.mark) },
  { key: "session", title: "Session", number: true, wide: true, text: (each) => format(each.session) },
  { key: "generation", title: "Generation", number: true, wide: true, text: (each) => format(each.generation) },
];

function ownerText(partition) {
  if (partition.owner === null) return "none";
  return partition.endpoint ?? `server ${partition.owner} is gone`;
}

function makeHead() {
  byId("partitions").tHead.rows[0].append(...COLUMNS.map((column) => element(
    "th", { scope: "col", class: classes(column), title: column.hint ?? null },
    element("button", { type: "button", onclick: () => sortBy(column.key) }, column.title),
  )));
}

function classes(column) {
  return [column.number ? "number" : "", column.wide ? "wide" : "", column.key === "replicas" ? "replicas" : ""].join(" ").trim() || null;
}

function sortBy(key) {
  page.sort = { key, ascending: page.sort.key === key ? !page.sort.ascending : !["rate", "p99_ms", "lag", "lag_s", "feed_lag_s"].includes(key) };
  showTable();
}

function wanted() {
  const words = byId("filter").value.toLowerCase().split(/[\s,]+/).filter(Boolean);
  const ranges = [];
  const texts = [];
  for (const word of words) {
    const match = /^(\d+)(?:-(\d+))?$/.exec(word);
    if (match) ranges.push([Number(match[1]), Number(match[2] ?? match[1])]);
    else texts.push(word);
  }
  const mine = byId("mine").checked ? page.answer.here.id : undefined;
  const unwell = byId("unwell").checked;
  return page.partitions.filter((each) => (
    (!ranges.length || ranges.some(([first, last]) => each.id >= first && each.id <= last))
    && texts.every((text) => each.searched.includes(text))
    && (mine === undefined || each.owner === mine)
    && (!unwell || each.health !== "well")
  ));
}

function sorted(partitions) {
  const column = COLUMNS.find((each) => each.key === page.sort.key);
  const value = column.value ?? ((each) => each[column.key]);
  const sign = page.sort.ascending ? 1 : -1;
  return partitions.map((each) => [value(each), each]).sort(([left, one], [right, other]) => {
    if (left !== right) {
      if (left === null) return 1; // unknown values come last in both directions
      if (right === null) return -1;
      return left < right ? -sign : sign;
    }
    return one.id - other.id;
  }).map(([, each]) => each);
}

function makeRow(id) {
  const cells = COLUMNS.map((column) => element("td", { class: classes(column) }));
  const button = element("button", { type: "button", "aria-expanded": "false" }, String(id));
  cells[0].append(button);
  const row = element("tr", { class: "row", onclick: () => toggle(id) }, ...cells);
  return { row, cells, button };
}

function fillRow(made, partition) {
  COLUMNS.forEach((column, place) => {
    const cell = made.cells[place];
    if (column.key === "health") {
      setText(cell, partition.words.join(", ") || "well");
      cell.className = partition.health === "well" ? "faint problems" : `${partition.health}-text problems`;
    } else if (column.key === "replicas") {
      setText(cell, replicasText(partition));
    } else if (column.key !== "id") {
      setText(cell, column.text(partition));
    }
  });
  made.cells[2].title = partition.owner === null ? "" : `server ${partition.owner}`;
  const open = page.open === partition.id;
  made.row.classList.toggle("open", open);
  made.button.setAttribute("aria-expanded", String(open));
}

function replicasText(partition) {
  const others = partition.replicas.filter((replica) => replica.state !== "current");
  const current = partition.replicas.length - others.length;
  return partition.replicas.length ? `${current}/${partition.replicas.length} current` : "none";
}

function showTable() {
  if (!page.number || !page.answer?.cluster) return;
  const found = sorted(wanted());
  const shown = found.slice(0, MAX_ROWS);
  for (const [place, head] of [...byId("partitions").tHead.rows[0].cells].entries()) {
    const order = page.sort.ascending ? "ascending" : "descending";
    if (COLUMNS[place].key === page.sort.key) head.setAttribute("aria-sort", order);
    else head.removeAttribute("aria-sort");
  }
  const body = byId("partitions").tBodies[0];
  const list = [];
  for (const partition of shown) {
    if (!rows.has(partition.id)) rows.set(partition.id, makeRow(partition.id));
    const made = rows.get(partition.id);
    fillRow(made, partition);
    list.push(made.row);
    if (page.open === partition.id && page.detail) list.push(page.detail);
  }
  const current = body.rows;
  if (current.length !== list.length || list.some((row, place) => current[place] !== row)) {
    const focused = document.activeElement;
    body.replaceChildren(...list);
    if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
  }
  const all = page.partitions.length;
  setText(byId("count"), found.length === all ? plural(all, "partition") : `${format(found.length)} of ${plural(all, "partition")}`);
  byId("more").hidden = found.length <= shown.length;
  setText(byId("more"), `${format(found.length - shown.length)} more: filter to see them`);
  if (page.open !== null) fillDetail();
}

function filterBy(text) {
  byId("filter").value = text;
  byId("unwell").checked = false;
  byId("mine").checked = false;
  showTable();
  byId("partitions-title").scrollIntoView({ block: "start" });
  byId("filter").focus({ preventScroll: true });
}

function show(id) {
  if (!wanted().some((partition) => partition.id === id)) {
    byId("filter").value = "";
    byId("unwell").checked = false;
    byId("mine").checked = false;
  }
  if (page.open !== id) toggle(id);
  rows.get(id)?.row.scrollIntoView({ block: "center" });
  rows.get(id)?.button.focus({ preventScroll: true });
}

// One partition

function toggle(id) {
  page.open = page.open === id ? null : id;
  page.detail = null;
  if (page.open !== null) {
    const facts = element("div", {});
    const charts = element("div", {});
    page.detail = element("tr", { class: "detail" }, element("td", { colspan: COLUMNS.length }, facts, charts));
    Object.assign(page.detail, { facts, charts });
    askDetail();
  }
  history.replaceState(null, "", page.open === null ? location.pathname : `#partition=${id}`);
  showTable();
}

function fillDetail() {
  const partition = page.partitions.find((each) => each.id === page.open);
  if (!partition || !page.detail) return;
  const facts = [
    ["owner", ownerText(partition)],
    ["generation", format(partition.generation)],
    ["store session", format(partition.session)],
    ["high-water mark", mark(partition.mark)],
    ["clients", partition.feed_lag ? `behind${lagText(partition.feed_lag, partition.feed_lag_s)}` : format(partition.feed_lag)],
    ...partition.replicas.map((replica) => [
      replica.storage, replica.state + lagText(replica.lag, replica.lag_s), replicaHealth(replica.state),
    ]),
  ];
  const text = JSON.stringify(facts);
  if (page.detail.text === text) return;
  page.detail.text = text;
  page.detail.facts.replaceChildren(element("dl", {}, ...facts.map(([name, value, health]) => element(
    "div", {}, element("dt", {}, name), element("dd", { class: health && health !== "well" ? `${health}-text` : null }, value),
  ))));
}

function lagText(transactions, age_s) {
  return (transactions ? `, lag ${format(transactions)}` : "") + (age_s ? `, ${seconds(age_s)} late` : "");
}

async function askDetail() {
  const detail = page.detail;
  const id = page.open;
  if (id === null || document.hidden) return;
  let told;
  try {
    told = await ask(`/console/partition.json?partition=${id}`);
  } catch {
    return; // the age in the header tells
  }
  if (page.detail !== detail) return;
  const parts = [];
  if (told.reasons.length) {
    parts.push(element("ul", { class: "why" }, ...told.reasons.flatMap((reason) => reason.details.map((text) => element(
      "li", {}, element("span", { class: `tag ${reason.severity}` }, reason.severity), element("span", {}, text),
    )))));
  }
  if (told.series) {
    const held = new Set(page.partitions.find((each) => each.id === id)?.replicas.map((replica) => `lag:${replica.storage}`));
    const lags = Object.keys(told.series).filter((name) => held.has(name)).sort();
    parts.push(element(
      "div", { class: "charts" },
      ...charts(
        told.step_s,
        ["Commits/s", [["commits", told.series.commits]], format],
        ["Append latency", [["p50", told.series.p50_ms], ["p99", told.series.p99_ms]], milliseconds],
        ["Replica lag", lags.map((name) => [name.slice(4), told.series[name]]), format],
      ),
    ));
  }
  if (!told.owned) parts.push(elsewhere(id));
  detail.charts.replaceChildren(...parts);
}

function elsewhere(id) {
  const partition = page.partitions.find((each) => each.id === id);
  const note = element("p", { class: "faint" });
  if (!partition?.endpoint) {
    note.append("No server owns the partition at present. Only an owner knows rates, latency and lag.");
    return note;
  }
  note.append("Rates, latency and lag of the last hour are in the console of its owner");
  const address = consoleOf(partition.endpoint, id);
  if (address) note.append(": ", element("a", { href: address, rel: "noreferrer" }, address), " (if its HTTP port is the same as here).");
  else note.append(`, ${partition.endpoint}, at its server.jetty.port.`);
  return note;
}

// Servers do not publish their HTTP ports. Another server most likely uses the same port as this page's.
function consoleOf(endpoint, id) {
  const host = endpoint.slice(0, endpoint.lastIndexOf(":"));
  const ours = page.answer.here.endpoint;
  if (!/^[A-Za-z0-9.-]+$/.test(host) || host === ours.slice(0, ours.lastIndexOf(":"))) return null;
  return `${location.protocol}//${host}${location.port ? `:${location.port}` : ""}/console#partition=${id}`;
}

// Charts

// All charts of a group show the same time: from the first known value on, and at least some minutes.
function charts(stepS, ...drawn) {
  const all = drawn.flatMap(([, series]) => series.map(([, values]) => values ?? []));
  const steps = Math.max(0, ...all.map((values) => values.length));
  const begins = all.map((values) => values.findIndex((value) => value !== null)).filter((begin) => begin >= 0);
  const first = Math.max(0, Math.min(steps - CHART.leastSteps, ...begins));
  const span = duration((steps - first) * stepS);
  return drawn.map(([title, series, text]) => chart(
    title, series.map(([name, values]) => [name, (values ?? []).slice(first)]), text, span,
  ));
}

function chart(title, known, text, span) {
  const all = known.flatMap(([, values]) => values).filter((value) => value !== null);
  const head = element("h3", {}, title);
  if (!all.length) {
    head.append(element("span", {}, "nothing yet"));
    return element("div", { class: "chart" }, head, picture([], 1, `${title}: nothing yet`), axis("", span));
  }
  const top = Math.max(...all) || 1;
  const latest = known.map(([name, values]) => [name, values.at(-1) ?? null]);
  const legend = latest.map(([name, value], place) => element(
    "span", {}, known.length > 1 ? element("b", { class: `series-${place % 5 + 1}` }, name) : "", ` ${text(value)}`,
  ));
  const many = known.length > 2;
  if (!many) head.append(element("span", {}, ...legend.flatMap((each) => [each, " "])));
  const label = `${title}, last ${span}: ${latest.map(([name, value]) => `${name} ${text(value)}`).join(", ")} now, highest ${text(top)}`;
  return element("div", { class: "chart" }, head, picture(known.map(([, values]) => values), top, label), axis(`highest ${text(Math.max(...all))}`, span), many ? element("div", { class: "names" }, ...legend) : null);
}

function axis(text, span) {
  return element("div", { class: "axis", "aria-hidden": "true" }, element("span", {}, `${span} ago`), element("span", {}, text), element("span", {}, "now"));
}

function picture(series, top, label) {
  const drawn = (tag, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const width = Math.max(1, ...series.map((values) => values.length - 1));
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${CHART.height}`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  for (const part of [0, 0.5, 1]) {
    const y = (CHART.height - 1) * part + 0.5;
    svg.append(drawn("path", { class: "grid", d: `M0 ${y}H${width}` }));
  }
  series.forEach((values, place) => {
    const first = width + 1 - values.length;
    let path = "";
    let pen = "M";
    values.forEach((value, step) => {
      if (value === null) {
        pen = "M";
        return;
      }
      const y = (CHART.height - 2) * (1 - value / top) + 1;
      path += `${pen}${first + step} ${y.toFixed(1)}${pen === "M" ? "h.1" : ""}`;
      pen = "L";
    });
    svg.append(drawn("path", { class: `series-${place % 5 + 1}`, d: path }));
  });
  return svg;
}

async function showHistory() {
  if (document.hidden) return;
  let told;
  try {
    told = await ask("/console/history.json");
  } catch {
    return; // the age in the header tells
  }
  const { commits, p50_ms, p99_ms, lag, lag_s, feed_lag_s, degraded } = told.series;
  byId("totals").replaceChildren(
    ...charts(
      told.step_s,
      ["Commits/s", [["commits", commits]], format],
      ["Append latency", [["p50", p50_ms], ["p99", p99_ms]], milliseconds],
      ["Largest lag", [["lag", lag]], format],
      ["Lateness", [["replicas", lag_s], ["clients", feed_lag_s]], seconds],
      ["Degraded partitions", [["partitions", degraded]], format],
    ),
  );
}

// Beginning

function followHash() {
  const match = /^#partition=(\d{1,10})$/.exec(location.hash);
  if (match && page.partitions.length && Number(match[1]) !== page.open) show(Number(match[1]));
}

async function repeat(work, pause) {
  for (;;) {
    await work();
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

makeHead();
for (const id of ["filter", "unwell", "mine"]) byId(id).addEventListener("input", showTable);
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input[type=search]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    byId("filter").focus();
  } else if (event.key === "Escape" && !typing && page.open !== null) {
    toggle(page.open);
  }
});
document.addEventListener("visibilitychange", () => {
  poll();
  showHistory();
  askDetail();
});
window.addEventListener("hashchange", followHash);
window.addEventListener("resize", drawMaps);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMaps);
setInterval(showAge, 1000);
poll().then(async () => {
  while (!page.partitions.length && !page.lost && !page.answer?.error) {
    await new Promise((resolve) => setTimeout(resolve, 200));
    await poll();
  }
  followHash();
  repeat(poll, POLL_MS);
});
repeat(showHistory, HISTORY_MS);
setInterval(askDetail, HISTORY_MS);
