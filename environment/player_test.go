package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"onering/data"
	"onering/sampler"
	"onering/tokenize"
)

// written are the templates of the families, each with a call of the tool add as the
// family writes it, and a call that cannot be read.
var written = map[string]struct{ template, call, broken string }{
	"hermes": {`{% if tools %}<|im_start|>system
<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools><|im_end|>
{% endif %}{% for m in messages %}{% if m.role == 'tool' %}{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}
<tool_response>
{{ m.content }}
</tool_response>{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>
{% endif %}{% else %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`, `<tool_call>
{"name": "add", "arguments": {"x": %s}}
</tool_call>`, `<tool_call>
{"name": "add", "arguments": {"x": 4, "x}}
</tool_call>`},
	"xml": {`{% if tools %}<|im_start|>system
{% for t in tools %}<function>{{ t.function.name }}</function>{% endfor %}<|im_end|>
{% endif %}{% for m in messages %}{% if m.role == 'tool' %}{% if loop.previtem and loop.previtem.role != 'tool' %}<|im_start|>user
{% endif %}<tool_response>
{{ m.content }}
</tool_response>
{% if loop.last or loop.nextitem.role != 'tool' %}<|im_end|>
{% endif %}{% else %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
<function={{ c.function.name }}>
{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>
{{ v }}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`, `<tool_call>
<function=add>
<parameter=x>
%s
</parameter>
</function>
</tool_call>`, `<tool_call>
<function=add>
<parameter=x>
4
</function>
</tool_call>`},
	// SmolLM3's template, which writes no calls of a history and reads another name.
	"smollm3": {`{% if xml_tools %}<|im_start|>system
{% for t in xml_tools %}{{ t | string }}{% endfor %}Answer with <tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`, `<tool_call>{"name": "add", "arguments": {"x": %s}}</tool_call>`, `<tool_call>{"name": "add", "arguments": {"x": 4, "x}}</tool_call>`},
	"llama": {`{% for m in messages %}{% if loop.first and tools is not none %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}<|im_start|>{{ m.role }}
{% if 'tool_calls' in m %}{% set c = m.tool_calls[0].function %}{{ '{"name": "' + c.name + '", "parameters": ' }}{{ c.arguments | tojson }}{{ '}' }}{% else %}{{ m.content }}{% endif %}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`, `{"name": "add", "parameters": {"x": %s}}`, `{"name": "add", "parameters": {"x": 4, "x}}`},
}

// ascii is a tokenizer of single characters with a chat template.
func ascii(t *testing.T, template string) *tokenize.Tokenizer {
	t.Helper()
	vocab := map[string]int{"<|im_start|>": 0, "<|im_end|>": 1}
	for c := rune(33); c < 127; c++ {
		vocab[string(c)] = len(vocab)
	}
	vocab["Ġ"], vocab["Ċ"] = len(vocab), len(vocab)+1
	settings := map[string]any{"tokenizer_class": "Qwen2Tokenizer", "chat_template": template, "added_tokens_decoder": map[string]any{
		"0": map[string]any{"content": "<|im_start|>", "special": true}, "1": map[string]any{"content": "<|im_end|>", "special": true}}}
	dir := t.TempDir()
	for name, content := range map[string]any{"vocab.json": vocab, "tokenizer_config.json": settings} {
		text, err := json.Marshal(content)
		if err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "merges.txt"), []byte("#version: 0.2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenize.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// A reciter is a policy that says turn after turn: the next one where it has read the beginning of
// an answer.
type reciter struct {
	turns [][]int32
	begin []int32 // the tokens before an answer
	read  []int32
	next  int     // of turns
	left  []int32 // of the turn
}

func (d *reciter) Slots() int     { return 1 }
func (d *reciter) MaxTokens() int { return 4000 }
func (d *reciter) Prefill(prompts [][]int32) ([]int, error) {
	d.read = slices.Clone(prompts[0])
	return []int{1}, nil
}
func (d *reciter) Begin(rows []sampler.Row) error { return d.say(rows) }
func (d *reciter) Step(rows []sampler.Row) error {
	d.read = append(d.read, rows[0].ID)
	return d.say(rows)
}
func (d *reciter) Free(int) {}
func (d *reciter) Drop(int) {}

func (d *reciter) say(rows []sampler.Row) error {
	if len(d.read) >= len(d.begin) && slices.Equal(d.read[len(d.read)-len(d.begin):], d.begin) && d.next < len(d.turns) {
		d.left = d.turns[d.next]
		d.next++
	}
	rows[0].Out = sampler.Drawn{ID: 2}
	if len(d.left) > 0 {
		rows[0].Out.ID, d.left = d.left[0], d.left[1:]
	}
	return nil
}

// An adder is a tool that adds 1, for as long as it is called.
type adder struct{ seen []Turn }

func (a *adder) Begin(context.Context, Start) (Episode, error) { return a, nil }
func (a *adder) Close() error                                  { return nil }
func (a *adder) Repeats() bool                                 { return true }
func (a *adder) Opening() (o Opening, err error) {
	err = o.Tools.UnmarshalJSON([]byte(`[{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}]`))
	return o, err
}

func (a *adder) Step(_ context.Context, t Turn) (o Observation, err error) {
	a.seen = append(a.seen, t)
	for _, c := range t.Calls {
		var arguments struct{ X int }
		if err := json.Unmarshal(c.Arguments, &arguments); err != nil {
			return o, err
		}
		o.Messages = append(o.Messages, tokenize.Message{Role: "tool", Content: fmt.Sprint(arguments.X+1, "é")})
	}
	o.Done = len(t.Calls) == 0
	return o, nil
}

// TestPlayerInChats: in the formats of all families, calls reach the environment,
// unreadable calls are answered, and the text between turns is the template's; sampled
// tokens stay unchanged.
func TestPlayerInChats(t *testing.T) {
	for name, family := range written {
		texts := []string{fmt.Sprintf(family.call, "4"), family.broken, fmt.Sprintf(family.call, "17"), "18"}
		e := recited(t, family.template, texts)
		if e.outcome.Failed != nil || e.got.Finish != sampler.Stop {
			t.Errorf("%s: %v, %s", name, e.outcome.Failed, e.got.Finish)
		}
		if sampled := e.tok.Decode(e.got.IDs, false); sampled != strings.Join(texts, "<|im_end|>")+"<|im_end|>" {
			t.Errorf("%s: sampled are %q", name, sampled)
		}
		for i, x := range []string{"5", "error: ", "18"} {
			said := e.tok.Decode(e.got.Observed[i].IDs, false)
			if !strings.Contains(said, "\n"+x) || !strings.HasSuffix(said, "<|im_start|>assistant\n") || strings.Contains(said, "<|im_end|><|im_end|>") || strings.HasPrefix(said, "<|im_end|>") {
				t.Errorf("%s: after turn %d stands %q", name, i+1, said)
			}
		}
		if a := e.seen; len(a) != 3 || len(a[1].Calls) != 1 || string(a[1].Calls[0].Arguments) != `{"x": 17}` || a[2].Number != 2 {
			t.Errorf("%s: the environment has seen %+v", name, a)
		}
		if read := append(e.read, e.got.IDs[len(e.got.IDs)-1]); !slices.Equal(read, e.ids) {
			t.Errorf("%s: the decoder has read\n%q\nthe response is\n%q", name, e.tok.Decode(read, false), e.tok.Decode(e.ids, false))
		}
	}
}

// TestWholeConversations: the tokens of an episode are appended turn by turn, and equal
// those that the template writes for the whole conversation, in the families whose
// templates write the calls of a history.
func TestWholeConversations(t *testing.T) {
	for name, family := range written {
		if name == "smollm3" {
			continue
		}
		e := recited(t, family.template, []string{fmt.Sprintf(family.call, "4"), fmt.Sprintf(family.call, "17"), "18"})
		called := func(x int) string {
			return fmt.Sprintf(`{"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"x": %d}}}]}`, x)
		}
		var c tokenize.Conversation
		text := fmt.Sprintf(`{"messages": [{"role": "user", "content": "how much?"}, %s, {"role": "tool", "content": "5é"}, %s, {"role": "tool", "content": "18é"}, {"role": "assistant", "content": "18"}]}`, called(4), called(17))
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		opening, err := (&adder{}).Opening()
		if err != nil {
			t.Fatal(err)
		}
		c.Tools = opening.Tools
		_, want, err := e.tok.EncodeChat(c)
		if err != nil {
			t.Fatal(err)
		}
		n := min(len(want), len(e.ids))
		if rest := e.tok.Decode(want[n:], false); !slices.Equal(want[:n], e.ids) || strings.TrimSpace(rest) != "" {
			t.Errorf("%s: the episode is\n%q\nthe template writes\n%q", name, e.tok.Decode(e.ids, false), e.tok.Decode(want, false))
		}
	}
}

// A recital is an episode whose turns were given.
type recital struct {
	tok     *tokenize.Tokenizer
	got     sampler.Response
	outcome Outcome
	seen    []Turn  // by the environment
	read    []int32 // by the decoder
	ids     []int32 // tokens of prompt and response
}

// recited plays an episode of the adder in which the policy says texts.
func recited(t *testing.T, template string, texts []string) recital {
	t.Helper()
	tok := ascii(t, template)
	chat, err := tokenize.ParseTemplate("chat")
	if err != nil {
		t.Fatal(err)
	}
	prompter, err := data.NewPrompter(tok, chat)
	if err != nil {
		t.Fatal(err)
	}
	a := &adder{}
	p := &Player{Environment: a, Limits: DefaultLimits(), Prompter: prompter, EOS: []int32{1}}
	group, _, prompt, err := p.Open(context.Background(), Start{Problem: data.Problem{ID: "p", Text: "how much?"}})
	if err != nil {
		t.Fatal(err)
	}
	begins := "<|im_start|>assistant\n"
	if strings.Contains(template, begins+"<think>\n") {
		begins += "<think>\n"
	}
	begin, _ := tok.EncodeSpans(begins, nil)
	d := &reciter{begin: begin}
	for _, text := range texts {
		ids, _ := tok.EncodeSpans(text+"<|im_end|>", nil)
		d.turns = append(d.turns, ids)
	}
	o := sampler.Options{Sampling: sampler.Greedy(3000), EOS: []int32{1}}
	round := p.Play(context.Background(), &o, []Group{group}, nil)
	got, _, err := sampler.Sample(context.Background(), d, o, []sampler.Request{{Prompt: prompt, Samples: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer round.Close()
	all, _ := got[0].Tokens()
	return recital{tok, got[0], round.End(got[0]), a.seen, d.read, slices.Concat(prompt, all)}
}

// A liar gives a reward that is not a number.
type liar struct{ adder }

func (l *liar) Begin(context.Context, Start) (Episode, error) { return l, nil }
func (l *liar) Step(context.Context, Turn) (Observation, error) {
	nan := math.NaN()
	return Observation{Done: true, Reward: &nan}, nil
}

// A fickle environment opens an episode differently each time.
type fickle struct {
	adder
	begun int
}

func (f *fickle) Begin(context.Context, Start) (Episode, error) {
	f.begun++
	return &opened{f, fmt.Sprint("game ", f.begun)}, nil
}

type opened struct {
	*fickle
	text string
}

func (o *opened) Opening() (Opening, error) {
	return Opening{Messages: []tokenize.Message{{Role: "user", Content: o.text}}}, nil
}

// TestPlayerRefuses: a reward that is not a number ends the episode without a grade and is
// not stored, because no file could hold it. An episode whose beginning the policy has
// not read has no grade either.
func TestPlayerRefuses(t *testing.T) {
	tok := ascii(t, written["hermes"].template)
	prompter, err := data.NewPrompter(tok, tokenize.Template{Chat: true})
	if err != nil {
		t.Fatal(err)
	}
	for want, e := range map[string]Environment{"NaN": &liar{}, "opens with other messages": &fickle{}} {
		p := &Player{Environment: e, Limits: DefaultLimits(), Prompter: prompter, EOS: []int32{1}}
		group, _, _, err := p.Open(context.Background(), Start{Problem: data.Problem{ID: "p", Text: "how much?"}})
		if err != nil {
			t.Fatal(err)
		}
		round := p.Play(context.Background(), &sampler.Options{}, []Group{group}, nil)
		told := make(chan sampler.Observation, 1)
		response := sampler.Response{IDs: []int32{5, 1}}
		round.turn(response, func(o sampler.Observation) { told <- o })
		<-told
		if got := round.End(response); got.Failed == nil || !strings.Contains(got.Failed.Error(), want) || !math.IsNaN(got.Rewards[0]) {
			t.Errorf("%+v, want %q", got, want)
		}
		round.Close()
	}
}

// TestInTime: a question to an environment before a run has the same time limit as an
// answer, even if the environment ignores its context.
func TestInTime(t *testing.T) {
	limits := DefaultLimits()
	limits.StepSeconds = 0.01
	err := limits.InTime(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("the connection broke")
	})
	if err == nil || err.Error() != "environment: it has not answered within 0.01 s (environment.step_seconds)" {
		t.Errorf("it hangs: %v", err)
	}
	missing := errors.New("no such server")
	if err := DefaultLimits().InTime(t.Context(), func(context.Context) error { return missing }); !errors.Is(err, missing) {
		t.Errorf("it fails: %v", err)
	}
}

// A box has room for some episodes of three turns.
type box struct {
	holds bool
	room  int64
	open  atomic.Int64
	most  atomic.Int64
}

type boxed struct {
	*box
	turns int
}

func (b *box) Holds() bool { return b.holds }
func (b *box) Begin(context.Context, Start) (Episode, error) {
	n := b.open.Add(1)
	if n > b.room {
		b.open.Add(-1)
		return nil, fmt.Errorf("the box: %w", ErrFull)
	}
	for most := b.most.Load(); n > most && !b.most.CompareAndSwap(most, n); most = b.most.Load() {
	}
	return &boxed{box: b}, nil
}
func (e *boxed) Close() error { e.open.Add(-1); return nil }
func (e *boxed) Step(_ context.Context, t Turn) (Observation, error) {
	e.turns++
	return Observation{Messages: []tokenize.Message{{Role: "user", Content: "on"}}, Done: e.turns == 3}, nil
}

// TestPlaces: episodes that keep something of an environment follow one another where
// at_once, or the environment, has fewer places than there are episodes.
func TestPlaces(t *testing.T) {
	tok := ascii(t, written["hermes"].template)
	prompter, err := data.NewPrompter(tok, tokenize.Template{Chat: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		holds           bool
		room            int64
		atOnce          int
		episodes, under int64
	}{{true, 100, 1, 8, 1}, {true, 1, 16, 8, 1}, {true, 3, 16, 24, 3}, {true, 100, 2, 8, 2}, {false, 100, 1, 8, 8}} {
		b := &box{holds: tt.holds, room: tt.room}
		p := &Player{Environment: b, Limits: DefaultLimits(), Prompter: prompter, EOS: []int32{1}}
		p.AtOnce = tt.atOnce
		group, _, prompt, err := p.Open(t.Context(), Start{Problem: data.Problem{ID: "p", Text: "how much?"}})
		if err != nil {
			t.Fatal(err)
		}
		round := p.Play(t.Context(), &sampler.Options{}, []Group{group}, nil)
		var all sync.WaitGroup
		for k := range int(tt.episodes) {
			all.Go(func() {
				r := sampler.Response{Sample: k}
				for turn := 1; ; turn++ {
					r.IDs = append(r.IDs, 5, 1)
					told := make(chan sampler.Observation, 1)
					round.turn(r, func(o sampler.Observation) { told <- o })
					o := <-told
					if o.End != "" || o.Err != nil {
						break
					}
					r.Observed = append(r.Observed, sampler.Observed{At: len(r.IDs), IDs: o.IDs})
				}
				if got := round.End(r); got.Failed != nil || len(got.Rewards) != 3 {
					t.Errorf("%+v: episode %d: %+v", tt, k, got)
				}
			})
		}
		all.Wait()
		round.Close()
		if most := b.most.Load(); most > tt.under || b.open.Load() != 0 {
			t.Errorf("%+v: %d episodes at once, %d left open after %d tokens", tt, most, b.open.Load(), len(prompt))
		}
	}
}

// TestThoughts: what the policy thinks is not a part of what an environment is told, nor are
// the calls in it, also where the prompt ends inside a thought.
func TestThoughts(t *testing.T) {
	call := fmt.Sprintf(written["hermes"].call, "4")
	opens := strings.Replace(written["hermes"].template, "<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}", 1)
	for template, texts := range map[string][]string{
		written["hermes"].template: {"<think>\n" + call + "\n</think>\n\n" + call, "<think>\n\n</think>\n\n18"},
		opens:                      {call + "</think>\n" + call, "\n</think>\n\n18"},
	} {
		e := recited(t, template, texts)
		if a := e.seen; len(a) != 2 || len(a[0].Calls) != 1 || a[0].Text != call || a[1].Text != "18" || e.outcome.Failed != nil {
			t.Errorf("the environment has seen %+v, %+v", a, e.outcome)
		}
	}
}
