// Package openai answers requests in the form of OpenAI's API over HTTP: completions and
// chats, streamed or whole, with the log-probs and ids of their tokens. Requests that
// come while others are answered are decoded together with them.
//
// A field that would change what is sampled and that is not there is refused by its
// name; docs/serving.md lists what is there.
package openai
