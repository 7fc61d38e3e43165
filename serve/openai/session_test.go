package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"onering/sampler"
)

// conversing returns a tester with an episode whose key is "episode".
func conversing(t *testing.T, maxTurns int) (*tester, *Session) {
	episode := &Session{Options: sampler.Options{Sampling: sampler.Plain(180), EOS: []int32{0}, Seed: 3}, Request: sampler.Request{ID: 7, First: 2}, MaxTurns: maxTurns}
	x := newTester(t, newFake(3, 200), func(o *Options) {
		o.Models[0].Tokenizer = tokenizerWith(t, `{% for m in messages %}<{{ m.role }}>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}`)
		o.Key = "secret"
		o.Sessions = func(key string) *Session {
			if key == "episode" {
				return episode
			}
			return nil
		}
	})
	x.key = "episode"
	return x, episode
}

// chatOf returns a request whose messages are the user's and the assistant's in turn.
func chatOf(said ...string) string {
	var list []string
	for i, text := range said {
		content, _ := json.Marshal(text)
		list = append(list, fmt.Sprintf(`{"role": %q, "content": %s}`, []string{"user", "assistant"}[i%2], content))
	}
	return `{"max_tokens": 6, "temperature": 0, "return_token_ids": true, "messages": [` + strings.Join(list, ", ") + `]}`
}

// TestSession: a request that extends the history continues with the sampled tokens, and any
// other request begins a new segment. Random draws continue, and requests cannot change them.
func TestSession(t *testing.T) {
	x, episode := conversing(t, 4)
	one := x.post("/v1/chat/completions", chatOf("ab"), 200)
	two := x.post("/v1/chat/completions", chatOf("ab", one.Choices[0].Message.Content, "c"), 200)
	all := append(slices.Clone(one.PromptIDs), one.Choices[0].IDs...)
	if !slices.Equal(two.PromptIDs[:len(all)], all) {
		t.Errorf("the second prompt is %v, which does not go on after %v", two.PromptIDs, all)
	}
	tok := x.server.list()[0].Tokenizer
	if got := tok.Decode(two.PromptIDs[len(all):], false); strings.TrimPrefix(got, "<|end|>") != "<user>c<|end|><a>" {
		t.Errorf("what follows the first turn is %q", got)
	}
	x.post("/v1/chat/completions", chatOf("other"), 200)
	x.post("/v1/chat/completions", `{"n": 2, `+chatOf("other")[1:], 400)
	four := x.post("/v1/chat/completions", chatOf("other", "unsaid", "c"), 200)
	if refused := x.post("/v1/chat/completions", chatOf("other"), http.StatusConflict); !strings.Contains(refused.Error.Message, "4 turns") {
		t.Errorf("a turn too many: %+v", refused.Error)
	}
	segments, err := episode.End(x.server)
	if err != nil || len(segments) != 3 {
		t.Fatalf("%d segments, %v", len(segments), err)
	}
	if s := segments[0]; !slices.Equal(s.Prompt, one.PromptIDs) || !slices.Equal(s.IDs, append(slices.Clone(one.Choices[0].IDs), two.Choices[0].IDs...)) || len(s.Observed) != 1 {
		t.Errorf("the first segment is %+v", s)
	}
	if s := segments[2]; !slices.Equal(s.Prompt, four.PromptIDs) {
		t.Errorf("the third segment is %+v", s)
	}
	for n, s := range segments {
		for i, logp := range s.LogProb {
			if want := sampler.Uniform(3, 7+uint64(n)<<48, 2, i); -logp != want {
				t.Errorf("segment %d, token %d was drawn by %v, want %v", n, i, -logp, want)
			}
		}
	}
	if refused := x.post("/v1/chat/completions", chatOf("ab"), http.StatusConflict); refused.Error.Code != "episode_over" {
		t.Errorf("after the end: %+v", refused.Error)
	}
	if x.decoder.busy[0]+x.decoder.busy[1]+x.decoder.busy[2] != 0 {
		t.Errorf("slots are in use: %v", x.decoder.busy)
	}
	x.key = "other"
	if got := x.post("/v1/chat/completions", chatOf("ab"), http.StatusUnauthorized); got.Error == nil {
		t.Error("another key is taken")
	}
}

// TestSessionOfIDs: a program that sends token ids continues with these ids.
func TestSessionOfIDs(t *testing.T) {
	x, episode := conversing(t, 9)
	ask := func(ids []int32) (choice []int32) {
		list, _ := json.Marshal(ids)
		got := x.post("/inference/v1/generate", fmt.Sprintf(`{"token_ids": %s, "sampling_params": {"max_tokens": 5}}`, list), 200)
		return got.Choices[0].IDs
	}
	prompt := []int32{3, 4, 5}
	one := ask(prompt)
	two := slices.Concat(prompt, one, []int32{9, 9})
	ask(append(two, ask(two)...)[:2]) // shorter than the history
	segments, err := episode.End(x.server)
	if err != nil || len(segments) != 2 || len(segments[0].Observed) != 1 || !slices.Equal(segments[0].Observed[0].IDs, []int32{9, 9}) {
		t.Errorf("%+v, %v", segments, err)
	}
	// The counter has the prompt of each segment, and of a turn that continues one what is new.
	x.key = "secret"
	want := fmt.Sprintf("\nonering_serve_prompt_tokens_total %d\n", len(prompt)+len([]int32{9, 9})+2)
	if _, text := x.ask("GET", "/metrics", ""); !strings.Contains(string(text), want) {
		t.Errorf("there is no %s", want)
	}
}

// TestSessionOfText: a prompt of text that continues the last answer, with its stop text, continues
// the segment.
func TestSessionOfText(t *testing.T) {
	x, episode := conversing(t, 9)
	ask := func(text string) string {
		body, _ := json.Marshal(map[string]any{"prompt": text, "max_tokens": 4})
		return x.post("/v1/completions", string(body), 200).Choices[0].Text
	}
	text := "ab"
	text += ask(text) + "cd"
	ask(text)
	ask("unlike")
	segments, err := episode.End(x.server)
	tok := x.server.list()[0].Tokenizer
	if err != nil || len(segments) != 2 || len(segments[0].Observed) != 1 || tok.Decode(segments[0].Observed[0].IDs, false) != "cd" {
		t.Errorf("%+v, %v", segments, err)
	}
}

// TestSessionLost: clients that leave streams at any moment, or ask again, never block
// their episode; a later request never continues a turn that no client has read.
func TestSessionLost(t *testing.T) {
	x, episode := conversing(t, 200)
	for i := range 60 {
		ctx, leave := context.WithCancel(context.Background())
		body := strings.Replace(chatOf("ab"), "{", `{"stream": true, `, 1)
		go func() {
			if r, err := x.send(ctx, "POST", "/v1/chat/completions", body); err == nil {
				io.CopyN(io.Discard, r.Body, int64(40*i))
				r.Body.Close()
			}
			leave()
		}()
		if i%2 == 0 {
			<-ctx.Done()
		}
		leave()
		x.post("/v1/chat/completions", chatOf("ab"), 200)
	}
	if _, err := episode.End(x.server); err != nil {
		t.Error(err)
	}
}

// A dying client reads the beginning of an answer, and has left when its turn has ended.
type dying struct {
	http.ResponseWriter
	until func()
	gone  bool
}

func (d *dying) Unwrap() http.ResponseWriter { return d.ResponseWriter }
func (d *dying) Write(b []byte) (int, error) {
	if d.gone {
		return 0, errors.New("the client is gone")
	}
	d.gone = true
	d.until()
	return d.ResponseWriter.Write(b)
}

// TestSessionDying: a request that fails after it took all events of its turn leaves the
// episode to the next request.
func TestSessionDying(t *testing.T) {
	x, episode := conversing(t, 9)
	x.decoder.gate = make(chan bool)
	stop := make(chan struct{})
	defer close(stop)
	until := func() {
		go func() {
			for {
				select {
				case x.decoder.gate <- true:
				case <-stop:
					return
				}
			}
		}()
		for over := false; !over; {
			look := func() error {
				over = len(episode.segments) > 0 && episode.segments[0].response.Finish != ""
				return nil
			}
			if err := x.server.engine.betweenSteps(context.Background(), look); err != nil {
				t.Error(err)
				return
			}
		}
	}
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(strings.Replace(chatOf("ab"), "{", `{"stream": true, `, 1)))
	r.Header.Set("Authorization", "Bearer episode")
	r.Header.Set("Content-Type", "application/json")
	w := &dying{ResponseWriter: httptest.NewRecorder(), until: until}
	x.server.Handler().ServeHTTP(w, r)
	if !w.gone {
		t.Fatalf("the request had no beginning: %+v", w.ResponseWriter)
	}
	if a := x.post("/v1/chat/completions", chatOf("ab"), 200); len(a.Choices[0].IDs) == 0 {
		t.Errorf("%+v", a)
	}
}

// TestSessionGone: the episode keeps all its turns if a client leaves in the middle of one.
func TestSessionGone(t *testing.T) {
	x, episode := conversing(t, 9)
	x.decoder.gate = make(chan bool)
	ctx, leave := context.WithCancel(context.Background())
	left := make(chan struct{})
	go func() {
		if r, err := x.send(ctx, "POST", "/v1/chat/completions", chatOf("ab")); err == nil {
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}
		close(left)
	}()
	x.decoder.gate <- true
	leave()
	<-left
	again := make(chan answered)
	go func() { again <- x.post("/v1/chat/completions", chatOf("ab"), 200) }()
	for done := false; !done; {
		select {
		case x.decoder.gate <- true:
		case a := <-again:
			if done = true; len(a.Choices[0].IDs) == 0 {
				t.Errorf("%+v", a)
			}
		}
	}
	close(x.decoder.gate)
	segments, err := episode.End(x.server)
	if err != nil || len(segments) != 2 {
		t.Errorf("%+v, %v", segments, err)
	}
}

// TestSessionAsks: each turn of a segment ends, and reports its tokens, as its request demands.
func TestSessionAsks(t *testing.T) {
	x, episode := conversing(t, 9)
	x.decoder.script = func([]int32) []int32 { return []int32{1, 2, 3, 4, 5, 6, 7, 8, 9} } // The model says abcdefghi; one letter passes with the token that follows a turn.
	prompt := []int32{12}
	for _, tt := range []struct {
		params, finish string
		want           []int32
		top            int
	}{
		{`"max_tokens": 2`, "length", []int32{1, 2}, 0},
		{`"stop_token_ids": [4]`, "stop", []int32{4}, 0},
		{`"stop": "f", "logprobs": 2`, "stop", []int32{6}, 2},
		{`"max_tokens": 9, "stop": ["c"], "logprobs": 1`, "stop", []int32{8, 9, 1, 2, 3}, 0}, // neither d nor f ends it
	} {
		list, _ := json.Marshal(prompt)
		got := x.post("/inference/v1/generate", fmt.Sprintf(`{"token_ids": %s, "sampling_params": {%s}}`, list, tt.params), 200)
		c := got.Choices[0]
		if !slices.Equal(c.IDs, tt.want) || *c.Finish != tt.finish || strings.Contains(tt.params, "logprobs") && len(c.Logprobs.Content[0].Top) != tt.top {
			t.Errorf("%s: %+v", tt.params, c)
		}
		prompt = slices.Concat(prompt, c.IDs, []int32{12})
	}
	if segments, err := episode.End(x.server); err != nil || len(segments) != 1 || len(segments[0].Observed) != 3 {
		t.Errorf("%+v, %v", segments, err)
	}
}
