import { readFileSync } from 'node:fs';
import { basename } from 'node:path';

// The generated dashboards as they are now: a changed panel needs no new build.
const dashboards = {
  name: 'dashboards',
  configurePreviewServer(server) {
    server.middlewares.use('/dashboards/', (request, reply) => {
      reply.setHeader('content-type', 'application/json');
      reply.end(readFileSync(new URL(`../../dashboards/generated/${basename(request.url)}`, import.meta.url)));
    });
  },
};

export default {
  root: 'app',
  plugins: [dashboards],
  define: { 'process.env.NODE_ENV': '"production"', global: 'globalThis' },
  build: { outDir: '../dist', emptyOutDir: true, minify: false, target: 'es2022', chunkSizeWarningLimit: 1e6, rolldownOptions: { shimMissingExports: true } },
};
