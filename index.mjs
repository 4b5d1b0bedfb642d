import keeper from './index.js';

export const { QueueKeeper } = keeper;
