package tokenize

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// anyText draws valid text of the kinds that are difficult for tokenizers.
func anyText() *rapid.Generator[string] {
	part := rapid.OneOf(
		rapid.StringN(0, 12, -1),
		rapid.StringOfN(rapid.RuneFrom([]rune(" \t\r\n\u00a0\u3000'sStTſlLrRveEmMdD019٣ab<|>_.,é中\u0301\u0323\u1dfa\U00011930")), 0, 24, -1),
		rapid.SampledFrom([]string{"<|im_start|>", "<|im_end|>", "<tool_call>", "<think>", "e\u0301", "각", "🙂"}),
	)
	return rapid.Map(rapid.SliceOfN(part, 0, 6), func(parts []string) string {
		return strings.ToValidUTF8(strings.Join(parts, ""), "?")
	})
}

// TestRoundTrip: Decode undoes Encode, except for normalization.
func TestRoundTrip(t *testing.T) {
	tok := small(t, "qwen")
	rapid.Check(t, func(t *rapid.T) {
		text := anyText().Draw(t, "text")
		// Added tokens are cut out before normalization, so the test normalizes each part.
		var want string
		tok.addedRaw.split(text, func(s string) { want += nfc(s) }, func(id int32) { want += tok.Token(id) })
		if got := tok.Decode(tok.Encode(text), false); got != want {
			t.Fatalf("Decode(Encode(%+q)) = %+q, want %+q", text, got, want)
		}
	})
}

// TestConcatenation: texts on both sides of an added token do not influence each other.
func TestConcatenation(t *testing.T) {
	tok := small(t, "qwen")
	rapid.Check(t, func(t *rapid.T) {
		// The texts have no "<", because with the token between them they could form another added
		// token.
		clean := strings.NewReplacer("<", "", "|", "")
		a, b := clean.Replace(anyText().Draw(t, "a")), clean.Replace(anyText().Draw(t, "b"))
		want := slices.Concat(tok.Encode(a), tok.Encode("<|im_end|>"), tok.Encode(b))
		if got := tok.Encode(a + "<|im_end|>" + b); !slices.Equal(got, want) {
			t.Fatalf("Encode(%+q + <|im_end|> + %+q) = %v, want %v", a, b, got, want)
		}
	})
}

// TestDecodeConcatenation: the bytes of two lists of ids are the bytes of the joined list.
func TestDecodeConcatenation(t *testing.T) {
	tok := small(t, "qwen")
	ids := rapid.SliceOf(rapid.Int32Range(-2, int32(tok.VocabSize())+2))
	rapid.Check(t, func(t *rapid.T) {
		a, b := ids.Draw(t, "a"), ids.Draw(t, "b")
		var raw []byte
		for _, id := range slices.Concat(a, b) {
			raw = tok.appendToken(raw, id, false)
		}
		if got, want := tok.Decode(slices.Concat(a, b), false), string(appendValid(nil, raw)); got != want {
			t.Fatalf("Decode = %+q, want %+q", got, want)
		}
	})
}

func TestStreamEqualsDecode(t *testing.T) {
	tok := small(t, "deepseek")
	// Most ids are single bytes, since those make broken characters.
	id := rapid.OneOf(rapid.Int32Range(0, 255), rapid.Int32Range(-2, int32(tok.VocabSize())+2))
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOf(id).Draw(t, "ids")
		d := tok.NewDecoder()
		d.SkipSpecial = rapid.Bool().Draw(t, "skip")
		var got string
		for _, id := range ids {
			text := d.Add(id)
			if !utf8.ValidString(text) {
				t.Fatalf("Add(%d) = %q, which is not valid UTF-8", id, text)
			}
			if len(d.held) > 3 {
				t.Fatalf("%d bytes held back", len(d.held))
			}
			got += text
		}
		got += d.Flush()
		if want := tok.Decode(ids, d.SkipSpecial); got != want {
			t.Fatalf("stream of %v = %+q, Decode = %+q", ids, got, want)
		}
	})
}

// TestStreamIsPrompt: a stream returns a character as soon as it is complete.
func TestStreamIsPrompt(t *testing.T) {
	tok := small(t, "qwen")
	d := tok.NewDecoder()
	var got []string
	for _, b := range []byte("a中\xe4\xb8x\xf0\x9f") {
		got = append(got, d.Add(tok.bpe.bytes[b]))
	}
	got = append(got, d.Flush(), d.Flush())
	want := []string{"a", "", "", "中", "", "", "\uFFFDx", "", "", "\uFFFD", ""}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestConcurrentUse(t *testing.T) {
	tok := small(t, "qwen")
	texts := goldens(t, "encode")
	texts = slices.DeleteFunc(texts, func(g golden) bool { return g.Tokenizer != "qwen" })
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for i := range texts {
				g := texts[(i+n*7)%len(texts)]
				if got := tok.Encode(g.Text); !slices.Equal(got, g.IDs) {
					t.Errorf("Encode(%q) = %v, want %v", g.Text, got, g.IDs)
				}
				if _, err := tok.Chat(Talk(Message{Role: "user", Content: g.Text})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// The result of Encode belongs to the caller, not to the cache.
func TestEncodeReturnsOwnSlice(t *testing.T) {
	tok := small(t, "qwen")
	first := tok.Encode("the same words")
	want := slices.Clone(first)
	for i := range first {
		first[i] = -1
	}
	if got := tok.Encode("the same words"); !slices.Equal(got, want) {
		t.Errorf("after the caller wrote into the ids, Encode = %v, want %v", got, want)
	}
}

// The test writes out the prompts of understand-r1-zero's evaluation.
func TestTemplatesOfOthers(t *testing.T) {
	for name, want := range map[string]string{
		"prime-zero":         "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The assistant first thinks about the reasoning process in the mind and then provides the user with the answer. The reasoning process and answer are enclosed within <think> </think> and <answer> </answer> tags, respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>. User: 1+1?\n\nPresent the answer in LaTex format: \\boxed{Your answer}. Assistant:",
		"open-reasoner-zero": "A conversation between User and Assistant. The User asks a question, and the Assistant solves it. The Assistant first thinks about the reasoning process in the mind and then provides the User with the answer. The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> </answer> tags, respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>. User: You must put your answer inside <answer> </answer> tags, i.e., <answer> answer here </answer>. And your final answer will be extracted automatically by the \\boxed{} tag.\nThis is the problem:\n1+1?\nAssistant: <think>",
		"llama-instruct":     "1+1?\nPlease reason step by step, and put your final answer within \\boxed{}.\n\n", // the user's message
		"r1d":                "1+1?",
	} {
		around, err := ParseTemplate(name)
		if got := around.Render("1+1?"); err != nil || got != want {
			t.Errorf("%s: %v\n%q\nwant\n%q", name, err, got, want)
		}
		if chat := name == "llama-instruct" || name == "r1d"; around.Chat != chat {
			t.Errorf("%s: the chat template is used: %t", name, around.Chat)
		}
	}
}

func TestTemplates(t *testing.T) {
	if got, want := Templates(), []string{"auto", "chat", "concat", "llama-instruct", "no", "open-reasoner-zero", "prime-zero", "qwen_math", "r1", "r1d"}; !slices.Equal(got, want) {
		t.Errorf("Templates = %q, want %q", got, want)
	}
	for _, name := range Templates() {
		tmpl, err := ParseTemplate(name)
		if err != nil || tmpl.Name != name {
			t.Errorf("ParseTemplate(%q) = %+v, %v", name, tmpl, err)
		}
		if got := tmpl.Render("Q"); got != tmpl.Prefix+"Q"+tmpl.Suffix {
			t.Errorf("%s renders %q", name, got)
		}
		for i := range tmpl.Stops {
			tmpl.Stops[i] = "changed"
		}
	}
	if r1, _ := ParseTemplate("r1"); !slices.Equal(r1.Stops, []string{"</answer>"}) {
		t.Errorf("r1 stops at %q", r1.Stops)
	}
	for text, want := range map[string]string{
		"r2":                             `tokenize: unknown template "r2" (have auto, chat, concat, llama-instruct, no, open-reasoner-zero, prime-zero, qwen_math, r1, r1d, or write a text with {problem} in it)`,
		"":                               `tokenize: unknown template "" (have auto, chat, concat, llama-instruct, no, open-reasoner-zero, prime-zero, qwen_math, r1, r1d, or write a text with {problem} in it)`,
		"Q: {problem}. Again: {problem}": `tokenize: the template "Q: {problem}. Again: {problem}" has {problem} more than once`,
	} {
		if _, err := ParseTemplate(text); err == nil || err.Error() != want {
			t.Errorf("ParseTemplate(%q): error %v, want %s", text, err, want)
		}
	}
	const custom = "Put it in \\boxed{}.\nQ: {problem}\nA:"
	tmpl, err := ParseTemplate(custom)
	if got, want := tmpl.Render("{problem} {x}"), "Put it in \\boxed{}.\nQ: {problem} {x}\nA:"; err != nil || tmpl.Name != custom || got != want {
		t.Errorf("%+v, %v renders %q, want %q", tmpl, err, got, want)
	}
}

// A chat template as a prompt template renders a conversation with one user message, with
// a system message before it if there is one, ready for the answer. BOS is the template's
// business, while around a text the tokenizer puts its own.
func TestPrompt(t *testing.T) {
	tok, err := LoadFS(fstest.MapFS{
		"vocab.json": {Data: []byte(`{"a":0,"b":1,"<s>":2,"u":3,"s":4,"|":5}`)},
		"merges.txt": {Data: []byte("#version: 0.2\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	tok.idsBefore = []int32{2}
	tok.chat = templateSource{plain: "{% for m in messages %}{{ m.role[0] }}{{ m.content }}|{% endfor %}{% if add_generation_prompt %}a{% endif %}"}.template(nil)
	chat := Template{Name: "chat", Chat: true}
	system := Template{Name: "chat", Chat: true, System: "b"}
	for _, tt := range []struct {
		around Template
		text   string
		ids    []int32
	}{
		{chat, "ub|a", []int32{3, 1, 5, 0}},
		{system, "sb|ub|a", []int32{4, 1, 5, 3, 1, 5, 0}},
		{Template{Prefix: "a", Suffix: "a"}, "aba", []int32{2, 0, 1, 0}},
	} {
		text, ids, err := tok.Prompt(tt.around, "b")
		if err != nil || text != tt.text || !slices.Equal(ids, tt.ids) {
			t.Errorf("%+v: %q %v %v, want %q %v", tt.around, text, ids, err, tt.text, tt.ids)
		}
	}
	tok.chat = &chatTemplate{}
	if _, _, err := tok.Prompt(chat, "b"); !errors.Is(err, ErrNoChatTemplate) {
		t.Errorf("without a chat template: %v", err)
	}
}
