// A data source that asks a Prometheus over HTTP as Grafana's own does: steps, $__rate_interval, legends, tables, label_values().
import { FieldType, LoadingState, toDataFrame } from '@grafana/data';
import * as scenes from '@grafana/scenes';

export const SOURCE = { uid: 'preview', type: 'preview' };
export const SCRAPE = 15; // s, the data source's "scrape interval"; no step is shorter
export const asked = []; // every answer: what the pictures rest on

async function call(path, parameters) {
  const reply = await (await fetch(`/prom/api/v1/${path}`, { method: 'POST', body: new URLSearchParams(parameters) })).json();
  if (reply.status !== 'success') throw new Error(`${parameters.query}: ${reply.error}`);
  return reply.data;
}

// `__auto` is Grafana's word for a series without a legend of its own: its only query's expression, or its labels.
const legend = (format, labels, expr) => {
  if (format && format !== '__auto') return format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, name) => labels[name] ?? '');
  const told = Object.entries(labels).filter(([name]) => name !== '__name__');
  return told.length ? `{${told.map(([name, value]) => `${name}="${value}"`).join(', ')}}` : expr;
};

const number = (text) => (text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text));

function table(refId, result, several) {
  const names = [...new Set(result.flatMap((series) => Object.keys(series.metric)))].sort();
  const field = (name, type, values, config = {}) => ({ name, type, values, config });
  return toDataFrame({
    refId,
    fields: [
      field('Time', FieldType.time, result.map((series) => series.value[0] * 1000)),
      ...names.map((name) => field(name, FieldType.string, result.map((series) => series.metric[name] ?? ''), { filterable: true })),
      field(several ? `Value #${refId}` : 'Value', FieldType.number, result.map((series) => number(series.value[1]))),
    ],
  });
}

// Grafana fills steps without a sample with nulls, so that a gap is drawn as one.
function grid(values, start, end, step) {
  const at = new Map(values.map(([time, value]) => [Math.round(time), number(value)]));
  const times = [];
  for (let time = start; time <= end; time += step) times.push(time);
  return [times.map((time) => time * 1000), times.map((time) => at.get(time) ?? null)];
}

// Spans in which an annotation's query has a series above its comparison, as the regions that Grafana makes of them.
export async function regions(expr, start, end, step) {
  const data = await call('query_range', { query: expr, start, end, step });
  asked.push({ expr, series: data.result.length });
  return data.result.flatMap(({ values }) => {
    const found = [];
    for (const [time] of values) {
      const last = found[found.length - 1];
      if (last && time - last.end <= step) last.end = time;
      else found.push({ start: time, end: time });
    }
    return found;
  });
}

class Prometheus extends scenes.RuntimeDataSource {
  async query(request) {
    const step = Math.max(SCRAPE, Math.ceil(request.intervalMs / 1000));
    const [start, end] = [request.range.from, request.range.to].map((time) => Math.floor(time.valueOf() / 1000 / step) * step);
    const own = { __rate_interval: `${Math.max(step + SCRAPE, 4 * SCRAPE)}s`, __interval: `${step}s`, __range: `${end - start}s` };
    const scoped = { ...request.scopedVars };
    for (const [name, value] of Object.entries(own)) scoped[name] = { text: value, value };
    const frames = await Promise.all(
      request.targets.filter((target) => target.expr).map(async (target) => {
        const expr = scenes.sceneGraph.interpolate(request.scopedVars.__sceneObject.value.valueOf(), target.expr, scoped);
        const data = target.instant
          ? await call('query', { query: expr, time: request.range.to.valueOf() / 1000 })
          : await call('query_range', { query: expr, start, end, step });
        asked.push({ expr, series: data.result.length });
        if (target.format === 'table') return [table(target.refId, data.result, request.targets.length > 1)];
        const format = scenes.sceneGraph.interpolate(request.scopedVars.__sceneObject.value.valueOf(), target.legendFormat, scoped);
        return data.result.map((series) => {
          const name = legend(format, series.metric, expr);
          const [times, values] = target.instant
            ? [[series.value[0] * 1000], [number(series.value[1])]]
            : grid(series.values, start, end, step);
          return toDataFrame({
            refId: target.refId,
            name,
            fields: [
              { name: 'Time', type: FieldType.time, values: times, config: { interval: step * 1000 } },
              { name: 'Value', type: FieldType.number, labels: series.metric, config: { displayNameFromDS: name }, values },
            ],
          });
        });
      }),
    );
    return { data: frames.flat(), state: LoadingState.Done };
  }

  async metricFindQuery(query, options) {
    const text = scenes.sceneGraph.interpolate(options?.scopedVars?.__sceneObject?.value.valueOf(), typeof query === 'string' ? query : query.query);
    const found = /^label_values\((.+),\s*(\w+)\)$/.exec(text);
    if (!found) throw new Error(`only label_values() is played here: ${text}`);
    const reply = await (await fetch(`/prom/api/v1/label/${found[2]}/values?match[]=${encodeURIComponent(found[1])}`)).json();
    asked.push({ expr: text, series: reply.data.length });
    return reply.data.map((value) => ({ text: value, value }));
  }

  async testDatasource() {
    return { status: 'success', message: '' };
  }
}

scenes.sceneUtils.registerRuntimeDataSource({ dataSource: new Prometheus(SOURCE.type, SOURCE.uid) });
