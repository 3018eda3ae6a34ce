// Panels of which @grafana/ui has the component: time series, single numbers and tables. What is around the component is Grafana's application.
import React from 'react';
import { PanelPlugin, cacheFieldDisplayNames, getFieldDisplayValues } from '@grafana/data';
import { sceneUtils } from '@grafana/scenes';
import { BigValue, TimeSeries, useTheme2 } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { setting } from './grafana.js';
import { HeatMap, Timeline, mark } from './standins.jsx';

const DRAWING = [
  'drawStyle', 'lineWidth', 'fillOpacity', 'lineInterpolation', 'showPoints', 'pointSize', 'spanNulls', 'axisPlacement', 'thresholdsStyle', 'gradientMode',
  'stacking', 'scaleDistribution', 'axisLabel', 'barAlignment', 'hideFrom', 'lineStyle', 'axisSoftMin', 'axisSoftMax', 'filterable', 'cellOptions', 'width',
  'align', 'minWidth',
];

const Nothing = ({ fieldConfig }) => (
  <div style={{ display: 'grid', placeItems: 'center', height: '100%', opacity: 0.7 }}>{fieldConfig.defaults.noValue ?? 'No data'}</div>
);

const Lines = (props) =>
  props.data.series.length ? (
    <TimeSeries
      frames={props.data.series}
      structureRev={props.data.structureRev}
      timeRange={props.timeRange}
      timeZone="utc"
      width={props.width}
      height={props.height}
      legend={{ calcs: [], placement: 'bottom', ...props.options.legend }}
      options={props.options}
    >
      {mark}
    </TimeSeries>
  ) : (
    <Nothing {...props} />
  );

function Number({ data, fieldConfig, options, replaceVariables, width, height }) {
  const theme = useTheme2();
  const shown = getFieldDisplayValues({
    data: data.series, fieldConfig, reduceOptions: options.reduceOptions, replaceVariables, theme, timeZone: 'utc',
  });
  const part = width / Math.max(1, shown.length);
  return (
    <div style={{ display: 'flex' }}>
      {shown.map((value, k) => (
        <BigValue
          key={k}
          theme={theme}
          width={part}
          height={height}
          value={shown.length > 1 ? value.display : { ...value.display, title: undefined }}
          colorMode={options.colorMode}
          graphMode={options.graphMode}
          justifyMode={options.justifyMode}
          textMode={options.textMode}
        />
      ))}
    </div>
  );
}

function Rows(props) {
  if (!props.data.series.some((frame) => frame.length)) return <Nothing {...props} />;
  cacheFieldDisplayNames(props.data.series); // headings are read from there
  return (
    <TableNG
      key={props.data.series[0].fields.map((field) => field.state?.displayName).join()} // it sorts when it is made, by the headings of then
      data={props.data.series[0]}
      width={props.width}
      height={props.height}
      sortBy={props.options.sortBy}
      cellHeight={props.options.cellHeight}
      noHeader={!props.options.showHeader}
      fieldConfig={props.fieldConfig}
      timeRange={props.timeRange}
      structureRev={props.data.structureRev}
      disableSanitizeHtml={false}
    />
  );
}

const or = (Component) => (props) => (props.data.series.length ? <Component {...props} /> : <Nothing {...props} />);

for (const [pluginId, component] of Object.entries({
  timeseries: Lines, stat: Number, table: Rows, heatmap: or(HeatMap), 'state-timeline': or(Timeline),
})) {
  const plugin = new PanelPlugin(component);
  plugin.useFieldConfig({ useCustomConfig: (builder) => DRAWING.forEach((id) => builder.addCustomEditor(setting(id))) });
  sceneUtils.registerRuntimePanelPlugin({ pluginId, plugin });
}
