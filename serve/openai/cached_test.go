package openai

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"onering/sampler"
)

// A keeper is a fake that continues prompts, in parts of 32 tokens.
type keeper struct{ *fake }

func (d keeper) PromptParts() sampler.Parts { return d }
func (d keeper) Part() (int, bool)          { return 32, false }

func (d keeper) Open(from, n, room int) (int, error) {
	h, err := d.Prefill([][]int32{d.prompts[from][:n]})
	return h[0], err
}

func (d keeper) Append(prefix int, ids []int32) error {
	d.prompts[prefix] = append(d.prompts[prefix], ids...)
	d.prefixes[prefix] += len(ids)
	return nil
}

func (d keeper) Save(int) (int, int, error) { return 0, 0, fmt.Errorf("not there") }

// TestCachedTokens: the usage tells in each API how many tokens of a prompt were kept, which is none
// of another key or salt unless prefixes are shared.
func TestCachedTokens(t *testing.T) {
	text := strings.Repeat("abcdefgh", 10)
	for _, c := range []struct {
		first, then string // key and salt
		share       bool
		want        int
	}{
		{"k", "k", false, 64}, {"k", "l", false, 0}, {"k", "l", true, 64}, {"k 1", "k 1", true, 64}, {"k 1", "k 2", true, 0}, {"k 1", "k", false, 0},
	} {
		x := newTester(t, newFake(4, 400), func(o *Options) {
			o.SharePrefixes, o.Models[0].Kept = c.share, 1000
			o.Models[0].Decoder = keeper{o.Models[0].Decoder.(*fake)}
		})
		ask := func(of, path, body string) (answer struct {
			Usage struct {
				Prompt int `json:"prompt_tokens"`
				Chat   struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
				Input    int `json:"input_tokens"`
				Response struct {
					Cached int `json:"cached_tokens"`
				} `json:"input_tokens_details"`
				Message int `json:"cache_read_input_tokens"`
			}
		}) {
			key, salt, _ := strings.Cut(of, " ")
			if salt != "" {
				body = strings.Replace(body, "{", fmt.Sprintf(`{"cache_salt": %q, `, salt), 1)
			}
			x.key = key
			if status, text := x.ask("POST", path, body); status != 200 || json.Unmarshal(text, &answer) != nil {
				t.Fatalf("%s: %d %s", path, status, text)
			}
			return answer
		}
		completion := fmt.Sprintf(`{"prompt": %q, "max_tokens": 3}`, text)
		if got := ask(c.first, "/v1/completions", completion).Usage.Chat.Cached; got != 0 {
			t.Errorf("%+v: the first answer has %d", c, got)
		}
		if got := ask(c.then, "/v1/completions", completion).Usage; got.Chat.Cached != c.want || got.Prompt != len(text) {
			t.Errorf("%+v: the second answer has %+v", c, got)
		}
		if strings.Contains(c.first, " ") {
			continue
		}
		chat := fmt.Sprintf(`[{"role": "user", "content": %q}]`, text)
		ask(c.first, "/v1/chat/completions", `{"max_tokens": 3, "messages": `+chat+`}`)
		if got := ask(c.then, "/v1/responses", `{"max_output_tokens": 3, "input": `+chat+`}`).Usage; got.Response.Cached != c.want {
			t.Errorf("%+v: a response has %+v", c, got)
		}
		if got := ask(c.then, "/v1/messages", `{"max_tokens": 3, "messages": `+chat+`}`).Usage; got.Message < c.want || got.Input+got.Message < len(text) {
			t.Errorf("%+v: a message has %+v", c, got)
		}
	}
}
