package sft

import (
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"math"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"

	"onering/data"
	"onering/internal/settings"
	"onering/models"
	"onering/policy"
	"onering/runtime"
	"onering/tokenize"
)

// An Example is a demonstration as tokens.
type Example struct {
	IDs   []int32 `json:"ids"`
	Learn []bool  `json:"learn"` // which ids count in the loss
	place string
	cut   int  // ids that are learned and were cut off
	bad   bool // a response without a second one that is labeled as not good

	reference float64 // log-prob of what is learned under the first policy, where a loss compares with it

	rewrites, otherPrompt bool // see tokenize.Dialogue
}

// sequence returns the part of x to compute: the ids up to the last learned one; learned
// ids are scored. The first id is not predicted.
func (x Example) sequence() (s runtime.Sequence) {
	for i, learn := range x.Learn {
		switch last := len(s.Scored) - 1; {
		case !learn || i == 0:
			continue
		case last >= 0 && s.Scored[last].To == i:
			s.Scored[last].To++
		default:
			s.Scored = append(s.Scored, runtime.Span{From: i, To: i + 1})
		}
		s.Tokens = x.IDs[:i+1]
	}
	return s
}

// An encoder turns demonstrations into ids.
type encoder struct {
	config   Config
	policy   *policy.Policy
	template tokenize.Template
	limit    int
	end      int32
	trial    bool     // nobody learns what is encoded
	all      bool     // every token is learned
	cut      bool     // what is too long is cut
	endTexts []string // the special tokens at which sampling stops, as text; see bare
}

// Encoder returns what encodes demonstrations for a policy, which must have a tokenizer and an end token.
func (c Config) Encoder(p *policy.Policy) (*encoder, error) {
	e := &encoder{config: c, policy: p, limit: c.Data.MaxTokens}
	if d := c.Data.demonstrationData; d != nil { // not of preferences
		e.all, e.cut = !d.AssistantOnly, d.TooLong == "cut"
	}
	var err error
	if e.template, err = c.Model.settings().PromptTemplate(); err != nil {
		return nil, err
	}
	if err := p.NeedTokenizer(); err != nil {
		return nil, err
	}
	if len(p.Model.EOS) == 0 {
		return nil, fmt.Errorf("train: %s names no eos_token_id, so a response has no end to learn", p.Dir)
	}
	// If sampling stops at several ids, the tokenizer's is the one that ends a turn; the
	// first id often ends a whole text, as in Llama 3.
	e.end = p.Model.EOS[0]
	if id, ok := p.Tokenizer.EOS(); ok && slices.Contains(p.Model.EOS, id) {
		e.end = id
	}
	for _, id := range p.Model.EOS {
		text := p.Tokenizer.Decode([]int32{id}, false)
		if p.Tokenizer.Decode([]int32{id}, true) == "" && strings.Trim(text, blanks) != "" { // otherwise it is an ordinary token
			e.endTexts = append(e.endTexts, text)
		}
	}
	if m := p.Model.MaxPositions; m > 0 && (e.limit == 0 || e.limit > m) {
		e.limit = m
	}
	return e, nil
}

// Encode returns the ids of a demonstration, at most those of data.max_tokens, and which of them are
// learned; nil if it is too long, unless only tokens that are not learned come after the limit, or
// data.too_long = "cut" and some learned ones come before.
func (e *encoder) Encode(d data.Demonstration) (*Example, error) {
	x, err := e.encodeUncut(d)
	if err != nil {
		return nil, fmt.Errorf("train: %s: %w", d.Place, err)
	}
	x.place, x.bad = d.Place, d.Good != nil && !*d.Good
	if e.all {
		unlearned := func(m tokenize.Message) bool { learned, _ := m.Learned(); return !learned }
		if d.Chat != nil && slices.ContainsFunc(d.Chat.Messages, unlearned) {
			return nil, fmt.Errorf("train: %s: a message says that its turn is not learned, and data.assistant_only = "+
				"false learns all: leave one of the two out", d.Place)
		}
		x.Learn = slices.Repeat([]bool{true}, len(x.IDs))
	}
	all := x.sequence().Count()
	if all == 0 {
		return nil, fmt.Errorf("train: %s: nothing in it is learned: it has %d tokens, and the first one is not predicted", d.Place, len(x.IDs))
	}
	if e.limit == 0 || len(x.IDs) <= e.limit {
		return x, nil
	}
	x.IDs, x.Learn = x.IDs[:e.limit], x.Learn[:e.limit]
	x.cut = all - x.sequence().Count()
	switch {
	case x.cut == 0: // all learned tokens come before
		return x, nil
	case x.cut == all || !e.cut: // it is too long
		return nil, nil
	}
	return x, nil
}

// encodeUncut returns a demonstration that is not cut yet: a text without a prompt (Whole), a conversation in the chat
// template, or a prompt in the template with its response. Each ends with one end token, which is learned.
func (e *encoder) encodeUncut(d data.Demonstration) (*Example, error) {
	t := e.policy.Tokenizer
	if d.Whole {
		text, hasEnd := e.bare(d.Response)
		if hasEnd {
			text = strings.TrimRight(d.Response, blanks) // with that end token
		}
		_, ids, err := t.Prompt(tokenize.Template{}, text)
		if err != nil {
			return nil, err
		}
		x := &Example{IDs: ids}
		if !hasEnd {
			x.IDs = append(x.IDs, e.end)
		}
		x.Learn = slices.Repeat([]bool{true}, len(x.IDs))
		return x, t.CheckKnown(text)
	}
	if d.Chat == nil && e.template.Chat {
		chat := tokenize.Conversation{Messages: []tokenize.Message{{Role: "user", Content: e.template.Render(d.Prompt)}, {Role: "assistant", Content: d.Response}}}
		return e.conversation(chat, 1, d.Place) // 1: the first message is the prompt
	}
	if d.Chat != nil && (e.template.Chat || e.template.Auto) {
		return e.conversation(d.Chat.Conversation, d.From, d.Place) // the messages before From are a prompt
	}
	if d.Prompt == "" || d.Response == "" {
		return nil, settings.About(fmt.Errorf("it is a conversation of %d messages, and the template %q takes one "+
			"text: set model.template to auto or chat, the template of the model's tokenizer", len(d.Chat.Messages), e.template.Name), "model.template")
	}
	around, err := e.template.Fill(d.Fields.Shown) // the row's values in place of the columns that the template names
	if err != nil {
		return nil, err
	}
	text, prompt, err := t.Prompt(around, d.Prompt)
	if err == nil {
		err = e.template.CheckKnown(t, text)
	}
	if err != nil {
		return nil, err
	}
	// The prompt is encoded alone, as it is for sampling.
	text, _ = e.bare(d.Response)
	response, _ := t.EncodeSpans(text, nil)
	x := &Example{IDs: slices.Concat(prompt, response, []int32{e.end})}
	x.Learn = slices.Concat(make([]bool, len(prompt)), slices.Repeat([]bool{true}, len(response)+1)) // 1: the end
	return x, t.CheckKnown(text)
}

// blanks may follow the token that ends a response.
const blanks = " \t\r\n"

// bare returns a response without the token that ends it, which is written once, and says whether it was there.
func (e *encoder) bare(response string) (string, bool) {
	for _, end := range e.endTexts {
		if rest, ok := strings.CutSuffix(strings.TrimRight(response, blanks), end); ok {
			return rest, true
		}
	}
	return response, false
}

// conversation returns the ids of a conversation in the tokenizer's chat template, of which the
// assistant's turns are learned; messages before number from are a prompt. Where the template writes no end
// behind the last turn, it gets the end token. It warns, naming place, of messages that the template leaves out.
func (e *encoder) conversation(c tokenize.Conversation, from int, place string) (*Example, error) {
	t, n := e.policy.Tokenizer, len(c.Messages)
	c.Messages = slices.Clone(c.Messages)
	for i, m := range c.Messages {
		if m.Role == "assistant" {
			c.Messages[i].Content, _ = e.bare(m.Content)
		}
	}
	c, err := e.template.Around(c)
	if err != nil {
		return nil, err
	}
	if untold := c.NewlyUntold(t); untold != "" && !e.trial {
		slog.Warn(untold, "first", place)
	}
	if from > 0 {
		from += len(c.Messages) - n // Around may have put a system message in front
	}
	d, err := t.Dialogue(c, from)
	if errors.Is(err, tokenize.ErrNoChatTemplate) {
		return nil, settings.About(fmt.Errorf("%w, which a conversation needs: take a model with one, or name columns such as {system} in model.template",
			err), "model.template")
	}
	if err != nil {
		return nil, err
	}
	x := &Example{rewrites: d.Rewrites, otherPrompt: d.OtherPrompt}
	if d.Open { // the end token follows the turn at once, not what the template writes behind it, such as a line break
		d.Text = d.Text[:d.Turns[len(d.Turns)-1].End]
	}
	x.IDs, x.Learn = t.EncodeSpans(d.Text, d.Turns)
	if d.Open {
		x.IDs, x.Learn = append(x.IDs, e.end), append(x.Learn, true)
	}
	return x, t.CheckKnown(d.Text)
}

// Scored are encoded demonstrations, of which what is learned is scored.
type Scored []runtime.Sequence

// Take returns n of them in passes that are shuffled, from place first on; see data.Take.
func (l Scored) Take(seed int64, first, n int) []runtime.Sequence {
	return data.Take(l, seed, first, n)
}

// Sequences reads and encodes the demonstrations of a file for a loss beside that of reinforcement learning, with the
// default settings of supervised training; what is learned is scored. A prompt that is a text gets the template. sum is
// the list's digest.
func Sequences(path string, template tokenize.TemplateSettings, p *policy.Policy, log *slog.Logger) (list Scored, sum string, err error) {
	c := Default("") // no path: the policy is open already
	c.Model.Template, c.Model.System, c.Model.Args = template.Template, template.System, template.Args
	e, err := c.Encoder(p)
	if err != nil {
		return nil, "", err
	}
	rows, report, err := data.LoadDemonstrations(path, c.Data.DemonstrationColumns, data.Options{Keep: e.template.Columns, OnBad: data.LeaveOut})
	s := new(set)
	if err == nil {
		report.Log(log, path)
		s, err = e.EncodeAll(rows, 1, path, log)
	}
	if err != nil {
		return nil, "", err
	}
	for _, x := range s.Examples {
		list = append(list, x.sequence())
	}
	return list, digest(s), nil
}

// A set is the demonstrations of a file.
type set struct {
	Examples []Example
	tokens   int // number of tokens learned in one pass
}

// EncodeAll encodes demonstrations; flag names their file in messages. together is how many in a row belong together, such
// as the 2 of a preference: all are left out if one is too long. It warns of what is cut or left out, and of what the
// chat template or missing ends do to learning; if most demonstrations or tokens are lost, that is an error.
func (e *encoder) EncodeAll(list []data.Demonstration, together int, flag string, log *slog.Logger) (*set, error) {
	all, err := e.encodeEach(list)
	if err != nil {
		return nil, err
	}
	for unit := range slices.Chunk(all, together) {
		if slices.Contains(unit, nil) { // one is too long
			clear(unit) // nil, as what is too long
		}
	}
	s, dropped, cut, lost := new(set), 0, 0, 0
	rewritten, otherPrompt, unended := "", "", "" // the first place of each
	for i, x := range all {
		if x == nil {
			dropped++
			continue
		}
		if x.cut > 0 {
			cut, lost = cut+1, lost+x.cut
		}
		if rewritten == "" && x.rewrites {
			rewritten = x.place
		}
		if otherPrompt == "" && x.otherPrompt {
			otherPrompt = x.place
		}
		if unended == "" && x.cut == 0 && !e.learnsEnd(x) {
			unended = list[i].Place
		}
		s.tokens += x.sequence().Count()
		s.Examples = append(s.Examples, *x)
	}
	e.warnOfMixed(list, flag, log)
	limit := fmt.Sprintf("more than %d tokens (--max-tokens; the model's %s)", e.limit, e.policy.Model.Context())
	cuttable := together == 1 && e.config.Data.demonstrationData != nil // preferences are not cut
	cutting := map[bool]string{true: "learn their beginnings with --too-long cut, "}[cuttable]
	switch {
	case 2*dropped > len(all):
		return nil, fmt.Errorf("train: %s: %d of %d demonstrations have %s: raise --max-tokens if the model has "+
			"positions left, %sor choose others with --filter", flag, dropped, len(all), limit, cutting)
	case lost > s.tokens:
		return nil, fmt.Errorf("train: %s: %d of %d tokens are cut off, since %d demonstrations have %s: raise "+
			"--max-tokens if the model has positions left, or leave such demonstrations out with --too-long drop", flag, lost, lost+s.tokens, cut, limit)
	case dropped+cut > 0:
		log.Warn("demonstrations have "+limit, "file", flag, "dropped", dropped, "cut", cut, "tokens_lost", lost, "kept", len(s.Examples))
	}
	if rewritten != "" {
		log.Info("the chat template writes earlier turns anew, such as without what was thought; they are learned as they were when they were the last",
			"first", rewritten)
	}
	if otherPrompt != "" {
		log.Warn("the chat template does not begin a turn of the assistant with the prompt that it makes for one: "+
			"the model learns from another beginning than it will see", "first", otherPrompt)
	}
	if unended != "" {
		log.Warn("demonstrations end with no token at which sampling stops (eos_token_id of generation_config.json): the model will not learn to stop",
			"first", unended, "eos_token_id", fmt.Sprint(e.policy.Model.EOS))
	}
	return s, nil
}

// frequency returns the loss of a model that knows nothing but how often each token is learned.
func (s *set) frequency() (loss float64) {
	times := map[int32]float64{}
	for _, x := range s.Examples {
		for i, learn := range x.Learn {
			if learn && i > 0 {
				times[x.IDs[i]]++
			}
		}
	}
	for _, n := range slices.Sorted(maps.Values(times)) { // in order, so that equal sets have equal bits
		loss -= n / float64(s.tokens) * math.Log(n/float64(s.tokens))
	}
	return loss
}

// warnOfMixed warns of rows some of which are in the chat template and others not, as where only some have a system message.
func (e *encoder) warnOfMixed(list []data.Demonstration, flag string, log *slog.Logger) {
	chats := 0
	for _, d := range list {
		if d.Chat != nil {
			chats++
		}
	}
	if e.template.Auto && chats > 0 && chats < len(list) {
		log.Warn("some rows are conversations, in the chat template, and others are texts alone, without it: --template chat treats all alike",
			"file", flag, "conversations", chats, "texts", len(list)-chats)
	}
}

// learnsEnd says whether an id that ends sampling is learned at the end of x, where a few others may follow it.
func (e *encoder) learnsEnd(x *Example) bool {
	if e.all {
		return true
	}
	for i, learn := range slices.Backward(x.Learn) {
		if learn && slices.Contains(e.policy.Model.EOS, x.IDs[i]) {
			return true
		}
		// A template may write a line break after the token that ends a turn.
		if learn && len(x.IDs)-i > 8 {
			return false
		}
	}
	return false
}

// encodeEach encodes demonstrations on all cores.
func (e *encoder) encodeEach(list []data.Demonstration) ([]*Example, error) {
	all, errs := make([]*Example, len(list)), make([]error, len(list))
	var failed atomic.Bool
	models.AtOnce(goruntime.GOMAXPROCS(0), len(list), func(i int) {
		if failed.Load() {
			return
		}
		if all[i], errs[i] = e.Encode(list[i]); errs[i] != nil {
			failed.Store(true)
		}
	})
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// digest returns a digest of the demonstrations.
func digest(sets ...*set) string {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	for _, s := range sets {
		fmt.Fprintln(h, len(s.Examples))
		for _, x := range s.Examples {
			fmt.Fprintln(h, x.IDs, x.Learn)
			if x.bad {
				fmt.Fprintln(h, "bad")
			}
		}
	}
	return fmt.Sprintf("crc32c:%08x", h.Sum32())
}
