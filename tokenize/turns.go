package tokenize

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"onering/tokenize/jinja"
)

// A span is a part of a text, in bytes.
type span struct{ Start, End int }

// A dialogue is a conversation as text, with the places that the assistant wrote.
type dialogue struct {
	Text string
	// Turns are the assistant's, in order, each with the special token that the template ends it with.
	Turns []span
	// Open says that the template writes no special token after the last turn.
	Open bool
	// Rewrites says that the template writes an earlier turn differently once a later one follows; Qwen3's
	// drops reasoning. Text has every turn in the form that it had as the last turn.
	Rewrites bool
	// OtherPrompt says that the text before a turn is not the prompt that the template
	// makes for it, as with a template whose prompts alone end in <think>.
	OtherPrompt bool
}

// Dialogue renders a conversation for training on the assistant's turns from message number from on. Messages
// before that one are a prompt, which is rendered as Chat renders it. An assistant's turn begins where the
// prompt for it ends, and it ends with the special token that the template writes after it. A template with
// generation statements marks the turns itself, so the whole conversation is rendered once. A turn whose
// message says so (see learnFields) is not among the turns.
func (t *Tokenizer) Dialogue(c Conversation, from int) (d dialogue, err error) {
	w := dialogueWriter{t: t, chat: c}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case noRendering:
			d, err = dialogue{}, fmt.Errorf("tokenize: chat template: %w", r.error)
		default:
			panic(r)
		}
	}()
	source, err := t.chat.choose(c)
	w.must(err)
	template, err := source.parse()
	w.must(err)
	for i, m := range c.Messages {
		learned, err := m.Learned() // false if a field of the message says so
		if err != nil {
			w.must(fmt.Errorf("message %d: %w", i+1, err))
		}
		if m.Role == "assistant" {
			w.notLearned = append(w.notLearned, !learned)
		}
	}
	if template.Marks() { // it has generation statements
		d = w.marked(from)
	} else {
		d = w.derived(from)
	}
	if len(d.Turns) == 0 {
		w.must(errors.New("no turn of the assistant is in the text that it makes"))
	}
	return d, nil
}

// A dialogueWriter renders parts of a conversation. It gives up by panicking with a
// noRendering, which Dialogue returns as an error.
type dialogueWriter struct {
	t          *Tokenizer
	chat       Conversation
	notLearned []bool // which of the assistant's messages are not learned
}

type noRendering struct{ error }

// must panics if there is an error; Dialogue returns it.
func (dialogueWriter) must(err error) {
	if err != nil {
		panic(noRendering{err})
	}
}

// render returns the text of the first n messages.
func (w dialogueWriter) render(n int, prompt bool) (string, []jinja.Mark) {
	c := w.chat
	c.Messages, c.AddGenerationPrompt = c.Messages[:n], prompt
	text, marks, err := w.t.chat.render(c)
	w.must(err)
	return text, marks
}

// marked returns the whole text, and as turns what the template's generation statements mark behind the prompt, which
// is the messages before number from. A turn that is not learned is left out.
func (w dialogueWriter) marked(from int) (d dialogue) {
	text, marks := w.render(len(w.chat.Messages), false) // false: without a prompt for one more answer
	d.Text = text
	promptEnd := 0
	if from > 0 {
		prompt, _ := w.render(from, true) // true: with the prompt for an answer
		promptEnd = commonPrefix(prompt, text)
		d.OtherPrompt = promptEnd < len(prompt) // the whole text does not begin with the prompt
	}
	skips := slices.Contains(w.notLearned, true)
	if skips && len(marks) != len(w.notLearned) {
		w.must(fmt.Errorf("it marks %d turns of the assistant, of %d messages, so the one that is not learned cannot be told", len(marks), len(w.notLearned)))
	}
	for i, m := range marks {
		if s := (span{max(m.Start, promptEnd), m.End}); s.Start < s.End && !(skips && w.notLearned[i]) {
			d.Turns = append(d.Turns, s)
		}
	}
	return d
}

// derived finds the turns of a template without generation statements: it renders the conversation up to each turn of
// the assistant, and appends to d.Text what that adds. Turns before message from, or not learned, are only text.
func (w dialogueWriter) derived(from int) (d dialogue) {
	last, tail := -1, "" // the message of the newest turn, and the template's text after it
	skip := w.notLearned // one for each message of the assistant
	for i, m := range w.chat.Messages {
		if m.Role != "assistant" {
			continue
		}
		skipped := skip[0]
		skip = skip[1:]
		if i < from {
			continue
		}
		text, start := w.turn(i, &d)
		if last >= 0 {
			behind := w.follows(text[:start], last, i+1, tail, &d)       // where text goes on behind the last turn and its tail
			text, start = d.Text+text[behind:], len(d.Text)+start-behind // earlier turns as they were, then what is new
		}
		// What stands behind the turn is the same with another text in it.
		tail = text[len(text)-commonSuffix(text[start:], w.replaced(i+1, i)):]
		end := specialEnd(w.t, tail)
		d.Open = end == 0 && !skipped // no special token ends the turn
		if s := (span{start, len(text) - len(tail) + end}); s.Start < s.End && !skipped {
			d.Turns = append(d.Turns, s)
		}
		d.Text, last = text, i
	}
	if n := len(w.chat.Messages); last >= 0 && last+1 < n {
		text, _ := w.render(n, false)                // false: without a prompt for one more answer
		behind := w.follows(text, last, n, tail, &d) // it may cut d.Text
		d.Text += text[behind:]
	}
	return d
}

// turn renders the messages up to number i, a turn of the assistant, and says where that begins: where the prompt for it
// ends. If the text does not begin with the prompt, it sets d.OtherPrompt, and the turn begins where its message does.
func (w dialogueWriter) turn(i int, d *dialogue) (text string, start int) {
	prompt, _ := w.render(i, true)
	if text, _ = w.render(i+1, false); strings.HasPrefix(text, prompt) {
		return text, len(prompt)
	}
	d.OtherPrompt = true
	return text, commonPrefix(text, w.replaced(i+1, i))
}

// follows returns the place in text, a beginning of the rendering of n messages, of the text after turn number
// last and its tail. If the template now writes that turn differently, the text after it is found by replacing
// the turn's message. Text that the template writes only at the end of a conversation is cut from d.Text.
func (w dialogueWriter) follows(text string, last, n int, tail string, d *dialogue) int {
	if strings.HasPrefix(text, d.Text) {
		return len(d.Text)
	}
	whole, _ := w.render(n, false)
	after := len(whole) - commonSuffix(whole, w.replaced(n, last))
	kept := commonPrefix(tail, whole[after:])                                              // how much of the tail stays where messages follow
	if after+kept > len(text) || kept < specialEnd(w.t, tail) || kept == 0 && tail != "" { // the token that ends the turn would go
		w.must(fmt.Errorf("it writes message %d anew once message %d follows, and what stands between them cannot be told", last+1, n))
	}
	d.Text = d.Text[:len(d.Text)-len(tail)+kept]
	d.Rewrites = d.Rewrites || !strings.HasPrefix(whole, d.Text)
	return after + kept
}

// replaced renders the first n messages with another text as message k, whose first and last letter are not
// those of the message: so both renderings agree right up to the message and right after it.
func (w dialogueWriter) replaced(n, k int) string {
	was := strings.TrimSpace(w.chat.Messages[k].Content)
	w.chat.Messages = slices.Clone(w.chat.Messages[:n])
	for _, text := range []string{"x", "y", "z"} {
		if !strings.HasPrefix(was, text) && !strings.HasSuffix(was, text) {
			w.chat.Messages[k] = Message{Role: "assistant", Content: text}
			break
		}
	}
	text, _ := w.render(n, false)
	return text
}

// specialEnd returns where the first special token in a text ends, 0 if there is none.
func specialEnd(t *Tokenizer, text string) int {
	end := 0
	t.addedRaw.split(text, func(string) {}, func(id int32) {
		if end == 0 && t.special[id] {
			end = strings.Index(text, t.names[id]) + len(t.names[id])
		}
	})
	return end
}

// commonPrefix returns the length of the longest text that begins both, in whole characters.
func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(a) && !utf8.RuneStart(a[n]) {
		n--
	}
	return n
}

// commonSuffix returns the length of the longest text that ends both, in whole characters.
func commonSuffix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	for n > 0 && !utf8.RuneStart(a[len(a)-n]) {
		n--
	}
	return n
}

// EncodeSpans returns the ids of a text as EncodeChat does, and which of them have a part in one of the spans.
// This is the mask that apply_chat_template of transformers returns for them.
func (t *Tokenizer) EncodeSpans(text string, spans []span) (ids []int32, inside []bool) {
	ids = t.appendText(nil, text)
	inside = make([]bool, len(ids))
	places := placesOf(t, text, ids)
	for _, s := range spans {
		if s.Start >= s.End {
			continue
		}
		_, last := utf8.DecodeLastRuneInString(text[:s.End]) // the last character's bytes
		for i, end := places(s.Start), places(s.End-last); i < len(ids) && i <= end; i++ {
			inside[i] = true
		}
	}
	return ids, inside
}

// placesOf returns a function that finds the index in ids of the token with the byte at a place of text: by the lengths
// of the tokens or, where these are not those of the text, by encoding the text up to the place.
func placesOf(t *Tokenizer, text string, ids []int32) func(at int) int {
	ends := make([]int, len(ids))
	n := 0
	for i, id := range ids {
		n += len(t.bytes[id])
		ends[i] = n
	}
	if n == len(t.form.apply(text)) && !t.form.ofCharacters { // the tokens are the bytes of the normalized text
		return func(at int) int {
			i, found := slices.BinarySearch(ends, len(t.form.apply(text[:at])))
			if found { // a token ends just before the place
				i++
			}
			return i
		}
	}
	// If spaces are written as ▁ and tokens strip them, the text up to the place is encoded alone.
	return func(at int) int {
		before := t.appendText(nil, text[:at])
		n := 0
		for n < min(len(before), len(ids)) && before[n] == ids[n] {
			n++
		}
		return n
	}
}
