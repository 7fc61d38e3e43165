package tokenize

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"onering/tokenize/jinja"
)

// A fitting puts messages into the form that a chat template reads, where clients of
// OpenAI's API write them in another one:
//   - The role "developer" is "system" for a template that does not know it.
//   - An answer without content, such as one that calls tools, has the content none if the
//     template asks for that, and else an empty text.
//   - Arguments of calls are JSON in a text. A template that would write this text as a JSON
//     string, or that wants their names, gets an object.
//   - A content of several texts is one text for a template that would fail for a list or
//     write it as one.
//   - Ids of calls have nine letters and digits for a template that refuses others.
type fitting struct {
	source string
	// content converts a content that is a list of texts into the template's form.
	content func(texts []string) jinja.Value
	// arguments converts arguments that are a text into the template's form.
	arguments func(text string) jinja.Value
}

// testsNone matches a template's test whether a content is none.
var testsNone = regexp.MustCompile(`\bcontent['"]?\]?\s*(?:is|is\s+not|==|!=)\s*[nN]one\b`)

// wantsNine matches a template's test whether the id of a call has nine characters, as Mistral's do.
var wantsNine = regexp.MustCompile(`\blength\s*!=\s*9\b`)

// shortenIDs gives all calls and their results ids of nine letters and digits: made of the client's ids, or, where it
// gave none, of the number of the call or of the result. It changes messages, which fitting.message has made: copies.
func shortenIDs(messages jinja.List) {
	calls, results := 0, 0
	short := func(d *jinja.Dict, key string, n *int) {
		*n++
		id, _ := d.Get(key)
		text, _ := id.(string)
		if text == "" {
			text = fmt.Sprintf("call%05d", *n)
		}
		if !nineCharacters.MatchString(text) {
			h := fnv.New64a()
			h.Write([]byte(text))
			text = fmt.Sprintf("%013s", strconv.FormatUint(h.Sum64(), 36))[4:] // nine of the hash's digits: equal ids stay equal
		}
		d.Set(key, text)
	}
	for _, v := range messages {
		m := v.(*jinja.Dict)
		list, _ := m.Get("tool_calls")
		of, _ := list.(jinja.List)
		for i := range of {
			if d, ok := of[i].(*jinja.Dict); ok {
				d = d.Clone()
				short(d, "id", &calls)
				of[i] = d
			}
		}
		if role, _ := m.Get("role"); role == "tool" {
			short(m, "tool_call_id", &results)
		}
	}
}

var nineCharacters = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)

// probe is JSON that no template contains.
const probe = `{"ARGUMENT": 1}`

// fitMessages returns the messages in the form that a template with this source reads. It finds what that is by trials:
// it has the template write messages with a probe in place of a content, or of a call's arguments, and looks how the
// probe comes out. render renders the template with messages.
func fitMessages(source string, messages []Message, render func(jinja.List) (string, error)) jinja.List {
	hasParts, hasArguments := false, false // contents of several texts, and calls with arguments in a text
	form := fitting{source,
		func([]string) jinja.Value { hasParts = true; return partsOfTexts([]string{partProbe}) },
		func(string) jinja.Value { hasArguments = true; return probe }}
	probed := form.all(messages)
	form.content = partsOfTexts // a list, unless the template fails for one, drops it or writes it as one
	if hasParts {
		if text, err := render(probed); err != nil || !strings.Contains(text, partProbe) || quoted.MatchString(text) {
			form.content = func(texts []string) jinja.Value { return strings.Join(texts, "") }
		}
	}
	if hasArguments {
		probed = form.all(messages) // with the probe of arguments alone
		form.arguments = func(text string) jinja.Value { return text }
		if text, err := render(probed); err != nil || !strings.Contains(text, probe) { // it fails, or encodes the text again
			form.arguments = asObject
		}
	}
	return form.all(messages)
}

// partProbe is a text that no conversation contains, and quoted finds it where a template
// writes the list that it stands in.
const partProbe = "ONE-TEXT-OF-SEVERAL"

var quoted = regexp.MustCompile(`['"]` + partProbe)

// textParts returns the texts of a content that is a list of parts, all texts.
func textParts(content jinja.Value) (texts []string, ok bool) {
	parts, _ := content.(jinja.List)
	for _, part := range parts {
		d, isDict := part.(*jinja.Dict)
		if !isDict {
			return nil, false
		}
		value, _ := d.Get("text")
		text, isText := value.(string)
		if kind, _ := d.Get("type"); !isText || !slices.Contains([]jinja.Value{"text", "input_text", "output_text", nil}, kind) {
			return nil, false
		}
		texts = append(texts, text)
	}
	return texts, len(parts) > 0
}

// partsOfTexts returns texts as the parts of a content.
func partsOfTexts(texts []string) jinja.Value {
	parts := make(jinja.List, len(texts))
	for i, text := range texts {
		parts[i] = jinja.NewDict("type", "text", "text", text)
	}
	return parts
}

// asObject returns the arguments of a call as an object, or their text if it is not an object.
func asObject(text string) jinja.Value {
	if strings.TrimSpace(text) == "" {
		return jinja.NewDict()
	}
	if object, err := jinja.FromJSON([]byte(text)); err == nil {
		return object
	}
	return text
}

func (f fitting) all(messages []Message) jinja.List {
	turns := make(jinja.List, len(messages))
	for i, m := range messages {
		turns[i] = f.message(m.dict())
	}
	if wantsNine.MatchString(f.source) {
		shortenIDs(turns)
	}
	return turns
}

// message converts a message to the form that the template reads: its role, its content and the arguments of its calls.
func (f fitting) message(m *jinja.Dict) *jinja.Dict {
	role, _ := m.Get("role")
	if role == "developer" && !strings.Contains(f.source, "developer") {
		m.Set("role", "system")
	}
	if content, _ := m.Get("content"); role == "assistant" && content == nil {
		m.Set("content", "")
		if testsNone.MatchString(f.source) {
			m.Set("content", nil) // dict leaves null fields out, and this template asks for none
		}
	}
	content, _ := m.Get("content")
	if texts, ok := textParts(content); ok {
		m.Set("content", f.content(texts))
	}
	value, _ := m.Get("tool_calls")
	if calls, ok := value.(jinja.List); ok {
		list := make(jinja.List, len(calls))
		for i, call := range calls {
			list[i] = f.call(call)
		}
		m.Set("tool_calls", list)
	}
	return m
}

// call returns a call, or its function, with arguments in the template's form.
func (f fitting) call(v jinja.Value) jinja.Value {
	d, ok := v.(*jinja.Dict)
	if !ok {
		return v
	}
	d = d.Clone()
	if function, ok := d.Get("function"); ok {
		d.Set("function", f.call(function))
	}
	arguments, _ := d.Get("arguments")
	if text, ok := arguments.(string); ok {
		d.Set("arguments", f.arguments(text))
	}
	return d
}

// oneCallEach gives each call of an answer with several an answer of its own, which its result follows, if the
// template refuses several calls in one answer or writes the first alone, as Llama 3's: that is, if it writes
// the same of firsts, the messages with the first calls alone. render renders the template with messages.
func oneCallEach(messages []Message, render func([]Message) (string, error)) []Message {
	var split, firsts []Message
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		calls, _ := m.field("tool_calls").(jinja.List)
		if len(calls) < 2 {
			split, firsts = append(split, m), append(firsts, m)
			continue
		}
		answer := Message{m.Role, m.Content, m.fields.Clone()} // with the first call
		answer.fields.Set("tool_calls", calls[:1])
		firsts = append(firsts, answer)
		var results []Message // of the calls, until each stands behind its call
		for ; i+1 < len(messages) && messages[i+1].Role == "tool"; i++ {
			results = append(results, messages[i+1])
		}
		firsts = append(firsts, results...)
		for k, call := range calls {
			if k > 0 {
				answer = Message{Role: m.Role, fields: jinja.NewDict("role", m.Role, "content", "", "tool_calls", calls[k:k+1])}
			}
			split = append(split, answer)
			of := Message{} // for its method field
			of.fields, _ = call.(*jinja.Dict)
			at := slices.IndexFunc(results, func(r Message) bool {
				id := r.field("tool_call_id")
				return id == nil || id == of.field("id") // without ids they are in order
			})
			if at >= 0 {
				split, results = append(split, results[at]), slices.Delete(results, at, at+1)
			}
		}
		split = append(split, results...)
	}
	if len(split) == len(messages) { // no answer has several calls
		return messages
	}
	if whole, err := render(messages); err == nil {
		if first, err := render(firsts); err != nil || first != whole {
			return messages // the template writes all calls of an answer
		}
	}
	if _, err := render(split); err != nil {
		return messages // the template refuses answers in a row, too
	}
	return split
}

// field returns a field of the object that a message was read from, nil if there is none.
func (m Message) field(name string) jinja.Value {
	if m.fields == nil {
		return nil
	}
	v, _ := m.fields.Get(name)
	return v
}
