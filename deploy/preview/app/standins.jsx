// Heat maps, timelines and marked regions are in Grafana's application and in no package. These stand in for them, and each says so in its corner: the data, the
// colours, the order of the rows and the ends of the scale are as Grafana has them; spacing, axes and tooltips are not.
import React, { useEffect, useRef } from 'react';
import { formattedValueToString, getDisplayProcessor, getFieldDisplayName, outerJoinDataFrames } from '@grafana/data';
import { useTheme2 } from '@grafana/ui';
import * as chromatic from 'd3-scale-chromatic';

const TAG = 'stand-in drawing';
const AXIS = { left: 46, bottom: 18 };
const INVERTED_IN_LIGHT = ['Cividis', 'Viridis', 'Magma', 'Inferno', 'Plasma', 'Turbo'];
const clock = (ms) => new Date(ms).toISOString().slice(11, 16);

function Tag() {
  return <div style={{ position: 'absolute', top: -22, right: 8, fontSize: 10, opacity: 0.6, fontStyle: 'italic' }}>{TAG}</div>;
}

// Times of the axis: whole minutes that leave about a hundred pixels between two.
function Times({ range, width }) {
  const [from, to] = [range.from.valueOf(), range.to.valueOf()];
  const step = [1, 2, 5, 10, 15, 30, 60].find((minutes) => (minutes * 60000 * width) / (to - from) > 70) * 60000;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at < to; at += step) ticks.push(at);
  return ticks.map((at) => (
    <span key={at} style={{ position: 'absolute', left: AXIS.left + ((at - from) / (to - from)) * width - 14, bottom: 0, fontSize: 11 }}>{clock(at)}</span>
  ));
}

// Regions of annotations behind the lines of a chart: {start, end} in seconds. A hook of the chart's own builder, added once.
const marked = new WeakSet();
export function mark(builder) {
  if (marked.has(builder)) return null;
  marked.add(builder);
  builder.addHook('drawClear', (plot) => {
    for (const { spans, colour } of window.regions ?? []) {
      for (const { start, end } of spans) {
        const [left, right] = [start, end].map((time) => plot.valToPos(time * 1000, 'x', true));
        const from = Math.max(left, plot.bbox.left);
        const wide = Math.min(right, plot.bbox.left + plot.bbox.width) - from;
        if (wide <= 0) continue;
        plot.ctx.fillStyle = `${colour}22`;
        plot.ctx.fillRect(from, plot.bbox.top, wide, plot.bbox.height);
        plot.ctx.fillStyle = colour;
        plot.ctx.fillRect(from, plot.bbox.top + plot.bbox.height, wide, 4);
      }
    }
  });
  return null;
}

export function HeatMap({ data, options, width, height, timeRange }) {
  const theme = useTheme2();
  const canvas = useRef(null);
  const rows = [...data.series].sort((a, b) => parseFloat(getFieldDisplayName(a.fields[1], a)) - parseFloat(getFieldDisplayName(b.fields[1], b)));
  const legend = 34;
  const [w, h] = [Math.max(1, Math.floor(width - AXIS.left - 4)), Math.max(1, Math.floor(height - AXIS.bottom - legend))];
  const values = rows.flatMap((frame) => frame.fields[1].values).filter((v) => v !== null && v > (options.filterValues?.le ?? -Infinity));
  const low = options.color.min ?? values.reduce((a, b) => Math.min(a, b), Infinity);
  const high = options.color.max ?? values.reduce((a, b) => Math.max(a, b), -Infinity);
  const scheme = chromatic[`interpolate${options.color.scheme}`];
  const flip = (theme.isLight && INVERTED_IN_LIGHT.includes(options.color.scheme)) !== Boolean(options.color.reverse);
  const colour = (v) => {
    const share = high > low ? Math.min(1, Math.max(0, (v - low) / (high - low))) : 0;
    const step = Math.round(share * (options.color.steps - 1)) / (options.color.steps - 1);
    return scheme(flip ? 1 - step : step);
  };
  const text = getDisplayProcessor({ field: { config: { unit: options.cellValues.unit, decimals: options.cellValues.decimals }, type: 'number' }, theme });
  const said = (v) => formattedValueToString(text(v));
  useEffect(() => {
    const pen = canvas.current.getContext('2d');
    pen.clearRect(0, 0, w, h);
    const [from, to] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
    rows.forEach((frame, k) => {
      const [times, found] = [frame.fields[0].values, frame.fields[1].values];
      const row = options.yAxis.reverse ? k : rows.length - 1 - k;
      const [top, bottom] = [Math.round((row * h) / rows.length), Math.round(((row + 1) * h) / rows.length)];
      times.forEach((at, j) => {
        if (found[j] === null) return;
        const [left, right] = [at, times[j + 1] ?? at + (times[1] - times[0])].map((t) => Math.round(((t - from) / (to - from)) * w));
        pen.fillStyle = colour(found[j]);
        pen.fillRect(left, top, Math.max(1, right - left), Math.max(1, bottom - top));
      });
    });
  });
  const every = Math.ceil(rows.length / Math.max(1, Math.floor(h / 22)));
  const names = rows.map((frame) => getFieldDisplayName(frame.fields[1], frame));
  const place = (k) => ((options.yAxis.reverse ? k : rows.length - 1 - k) + 0.5) * (h / rows.length);
  return (
    <div style={{ position: 'relative', width, height }}>
      <Tag />
      <canvas ref={canvas} width={w} height={h} style={{ position: 'absolute', left: AXIS.left, top: 0 }} />
      {names.map((name, k) => k % every === 0 && (
        <span key={name} style={{ position: 'absolute', right: width - AXIS.left + 6, top: place(k) - 8, fontSize: 11 }}>{name}</span>
      ))}
      <div style={{ position: 'absolute', left: 0, top: 0, width, height: h + AXIS.bottom }}><Times range={timeRange} width={w} /></div>
      <div style={{ position: 'absolute', left: AXIS.left, bottom: 4, display: 'flex', gap: 6, fontSize: 11, alignItems: 'center' }}>
        <span>{said(low)}</span>
        <span style={{ width: 160, height: 8, background: `linear-gradient(to right, ${[...Array(9).keys()].map((k) => scheme(flip ? 1 - k / 8 : k / 8)).join(', ')})` }} />
        <span>{said(high)}</span>
      </div>
    </div>
  );
}

export function Timeline({ data, options, width, height, timeRange }) {
  const legend = 26;
  const left = 150;
  const [w, h] = [width - left - 8, height - AXIS.bottom - legend];
  const joined = data.series.length > 1 ? outerJoinDataFrames({ frames: data.series, keepDisplayNames: true }) : data.series[0];
  const [time, ...rows] = joined.fields;
  const [from, to] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  const x = (at) => ((at - from) / (to - from)) * w;
  const spans = rows.map((field) => {
    const found = [];
    field.values.forEach((value, k) => {
      if (value === null || value === undefined) return;
      const end = time.values[k + 1] ?? time.values[k] + 15000;
      const last = found[found.length - 1];
      if (last && last.value === value && last.end === time.values[k]) last.end = end;
      else found.push({ value, start: time.values[k], end });
    });
    return found;
  });
  const seen = new Map();
  rows.forEach((field, k) => spans[k].forEach(({ value }) => { const shown = field.display(value); seen.set(shown.text, shown.color); }));
  const row = h / rows.length;
  return (
    <div style={{ position: 'relative', width, height }}>
      <Tag />
      {rows.map((field, k) => (
        <React.Fragment key={k}>
          <span style={{ position: 'absolute', right: width - left + 8, top: (k + 0.5) * row - 9, fontSize: 12, whiteSpace: 'nowrap' }}>
            {getFieldDisplayName(field, joined)}
          </span>
          {spans[k].map(({ value, start, end }) => {
            const shown = field.display(value);
            const wide = x(end) - x(start);
            return (
              <span
                key={start}
                style={{
                  position: 'absolute', left: left + x(start), width: wide, top: (k + 0.5 - options.rowHeight / 2) * row, height: options.rowHeight * row,
                  background: shown.color, color: '#111', fontSize: 12, overflow: 'hidden', whiteSpace: 'nowrap', lineHeight: `${options.rowHeight * row}px`,
                }}
              >
                {wide > 8 * shown.text.length ? ` ${shown.text}` : ''}
              </span>
            );
          })}
        </React.Fragment>
      ))}
      <div style={{ position: 'absolute', left: left - AXIS.left, top: 0, width: w, height: h + AXIS.bottom }}><Times range={timeRange} width={w} /></div>
      <div style={{ position: 'absolute', left, bottom: 0, display: 'flex', gap: 14, fontSize: 12 }}>
        {[...seen].map(([name, colour]) => (
          <span key={name}><span style={{ display: 'inline-block', width: 14, height: 4, marginRight: 5, verticalAlign: 'middle', background: colour }} />{name}</span>
        ))}
      </div>
    </div>
  );
}
