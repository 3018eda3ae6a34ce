// What Grafana's own application sets up before its first panel: registries, services and the theme.
import * as data from '@grafana/data';
import { LoadingState, identityOverrideProcessor } from '@grafana/data';
import * as i18n from '@grafana/i18n';
import * as runtime from '@grafana/runtime';
import { from } from 'rxjs';

// Standard field settings by path: none but `unit` and its like change a value, and these are read from the field's config.
const STANDARD = [
  'unit', 'min', 'max', 'decimals', 'displayName', 'color', 'noValue', 'links', 'mappings', 'thresholds', 'filterable', 'actions', 'fieldMinMax',
];

export const setting = (id) => ({
  id, path: id, name: id, settings: {}, editor: () => null, override: () => null, process: identityOverrideProcessor, shouldApply: () => true,
});

export async function setUp(theme) {
  const transformers = [...new Map(Object.values(data.standardTransformers).map((each) => [each.id, each])).values()];
  data.standardTransformersRegistry.setInit(() =>
    transformers.map((each) => ({ id: each.id, name: each.name, description: each.description, editor: () => null, transformation: async () => each })),
  );
  data.standardFieldConfigEditorRegistry.setInit(() => STANDARD.map(setting));
  data.standardEditorsRegistry.setInit(() => []);
  for (const part of ['grafana-ui', 'scenes', 'grafana-scenes']) await i18n.initPluginTranslations?.(part);
  runtime.setTemplateSrv({ getVariables: () => [], replace: (text) => text, containsTemplate: () => false, updateTimeRange() {} });
  runtime.setBackendSrv({ get: async () => ({}), post: async () => ({}), fetch: () => from([{ data: {} }]) });
  runtime.setAppEvents?.(new data.EventBusSrv());
  runtime.setDataSourceSrv({
    get: async (ref) => { throw new Error(`no data source ${JSON.stringify(ref)}`); }, getInstanceSettings: () => undefined, getList: () => [],
  });
  runtime.setRunRequest((source, request) =>
    from(
      Promise.resolve(source.query(request)).then(
        (answer) => ({ state: LoadingState.Done, series: answer.data, timeRange: request.range, request }),
        (error) => ({ state: LoadingState.Error, series: [], errors: [{ message: String(error) }], timeRange: request.range, request }),
      ),
    ),
  );
  runtime.setPluginImportUtils?.({ importPanelPlugin: async () => undefined, getPanelPluginFromCache: () => undefined });
  runtime.config.theme2 = theme;
  runtime.config.timezone = 'utc';
}
