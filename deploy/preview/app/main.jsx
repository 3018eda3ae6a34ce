// One dashboard as a scene: /?page=slowrank-engine&from=MS&to=MS&theme=dark&var-engine=...
import React from 'react';
import { createRoot } from 'react-dom/client';
import { BrowserRouter } from 'react-router-dom';
import { ThemeContext, createTheme } from '@grafana/data';
import * as scenes from '@grafana/scenes';
import { GlobalStyles } from '@grafana/ui';
import { setUp } from './grafana.js';
import { SOURCE, asked, regions } from './prometheus.js';
import './panels.jsx';

const wanted = new URLSearchParams(window.location.search);
const problems = (window.problems = []);
window.asked = asked;
window.addEventListener('error', (event) => problems.push(event.message));
window.addEventListener('unhandledrejection', (event) => problems.push(String(event.reason)));

const panel = (p) =>
  new scenes.VizPanel({
    title: p.title,
    description: p.description,
    pluginId: p.type,
    options: p.options,
    fieldConfig: p.fieldConfig,
    $data: new scenes.SceneDataTransformer({
      transformations: p.transformations ?? [],
      $data: new scenes.SceneQueryRunner({ datasource: SOURCE, queries: p.targets.map((t) => ({ ...t, datasource: SOURCE })), maxDataPoints: p.maxDataPoints }),
    }),
  });

const place = ({ x, y, w, h }) => ({ x, y, width: w, height: h });

function children(panels) {
  const placed = [];
  let into = placed;
  for (const p of panels) {
    if (p.type === 'row') {
      const row = new scenes.SceneGridRow({ title: p.title, y: p.gridPos.y, isCollapsible: false, children: [] });
      placed.push(row);
      into = { push: (item) => row.setState({ children: [...row.state.children, item] }) };
    } else into.push(new scenes.SceneGridItem({ ...place(p.gridPos), isDraggable: false, isResizable: false, body: panel(p) }));
  }
  return placed;
}

const variable = (v) => {
  const value = wanted.get(`var-${v.name}`);
  const common = { name: v.name, label: v.label };
  if (v.type === 'datasource') return new scenes.CustomVariable({ ...common, query: 'Prometheus', value: 'Prometheus', text: 'Prometheus' });
  return new scenes.QueryVariable({
    ...common, datasource: SOURCE, query: { query: v.query, refId: v.name }, refresh: v.refresh, sort: v.sort, isMulti: v.multi, includeAll: v.includeAll,
    ...(value === null ? {} : { value, text: value }),
  });
};

async function main() {
  const theme = createTheme({ colors: { mode: wanted.get('theme') ?? 'dark' } });
  await setUp(theme);
  const page = await (await fetch(`/dashboards/${wanted.get('page')}.json`)).json();
  const time = (name) => (wanted.get(name) ? new Date(Number(wanted.get(name))).toISOString() : page.time[name]);
  const [start, end] = ['from', 'to'].map((name) => Number(wanted.get(name)) / 1000);
  const filled = (expr) => expr.replace(/\$(\w+)/g, (_, name) => wanted.get(`var-${name}`) ?? '');
  window.regions = await Promise.all(
    page.annotations.list.filter((each) => each.enable).map(async (each) => ({
      colour: each.iconColor, spans: await regions(filled(each.expr), start, end, parseInt(each.step, 10)),
    })),
  );
  const high = Math.max(...page.panels.map((p) => p.gridPos.y + p.gridPos.h)) * 38 + 8;
  const scene = new scenes.EmbeddedScene({
    $timeRange: new scenes.SceneTimeRange({ from: time('from'), to: time('to'), timeZone: 'utc' }),
    $variables: new scenes.SceneVariableSet({ variables: page.templating.list.map(variable) }),
    controls: [new scenes.VariableValueSelectors({}), new scenes.SceneControlsSpacer(), new scenes.SceneTimePicker({})],
    body: new scenes.SceneGridLayout({ isLazy: false, isDraggable: false, children: children(page.panels) }),
  });
  document.body.style.background = theme.colors.background.canvas;
  createRoot(document.getElementById('root')).render(
    <BrowserRouter>
      <ThemeContext.Provider value={theme}>
        <GlobalStyles />
        <h1 style={{ margin: '10px 16px 0', fontSize: 20, color: theme.colors.text.primary }}>{page.title}</h1>
        <div style={{ height: high + 70, padding: '0 8px' }}><scene.Component model={scene} /></div>
      </ThemeContext.Provider>
    </BrowserRouter>,
  );
  window.height = high + 120;
}

main().catch((error) => problems.push(error.stack));
