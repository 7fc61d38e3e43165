package openai

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"onering/sampler"
	"onering/tokenize"
	"onering/tokenize/tools"
)

// A choice is one response as it is told to a client: a text without end-of-sequence
// tokens, that ends before the stop text.
type choice struct {
	eos    []int32
	stops  []string
	decode *tokenize.StreamDecoder // nil without a tokenizer
	held   string                  // what may be the beginning of a stop text
	cut    bool                    // a stop text came

	placed  *tokenize.StreamDecoder // of the tokens whose place was asked for
	written int                     // their whole characters

	reader *tools.Stream // of calls, nil if there are no tools
	calls  []tools.Call
	most   int // calls that are told

	counts *counts // may be nil

	ids    []int32
	logp   []float32
	top    [][]sampler.Candidate // of each token, where they were asked for
	said   strings.Builder
	finish string // "" until the end
}

func newChoice(m *Model, stops []string) *choice {
	c := &choice{eos: m.EOS, stops: stops, most: math.MaxInt}
	if m.Tokenizer != nil {
		c.decode, c.placed = m.Tokenizer.NewDecoder(), m.Tokenizer.NewDecoder()
		c.decode.SkipSpecial, c.placed.SkipSpecial = true, true
	}
	return c
}

// place returns at which character of the text the next token begins: inside one, if the
// token is a further part of it. name is the token without a tokenizer.
func (c *choice) place(id int32, name string) int {
	if c.placed == nil {
		at := c.written
		c.written += utf8.RuneCountInString(name)
		return at
	}
	at := c.written + utf8.RuneCountInString(c.placed.Pending())
	c.written += utf8.RuneCountInString(c.placed.Add(id))
	return at
}

// add takes an event and returns the text and the calls that it adds.
func (c *choice) add(e event) (text string, calls []tools.Call) {
	if e.finish != "" {
		c.finish = string(e.finish)
		if c.decode != nil {
			text = c.hold(c.decode.Flush())
		}
		if !c.cut {
			text, c.held = text+c.held, ""
		}
	} else {
		c.ids, c.logp = append(c.ids, e.id), append(c.logp, e.logp)
		if e.top != nil {
			c.top = append(c.top, e.top)
		}
		if c.decode != nil && !slices.Contains(c.eos, e.id) {
			text = c.hold(c.decode.Add(e.id))
		}
	}
	if c.reader != nil {
		text, calls = c.reader.Add(text)
		if e.finish != "" {
			rest, last, _ := c.reader.End() // what is no call is in the text
			text, calls = text+rest, append(calls, last...)
		}
		calls = calls[:min(len(calls), c.most-len(c.calls))]
		c.calls = append(c.calls, calls...)
		if e.finish != "" && len(c.calls) > 0 {
			c.finish = "tool_calls"
		}
	}
	if c.counts != nil {
		c.counts.add(c.finish)
	}
	c.said.WriteString(text)
	return text, calls
}

// hold adds text and returns what cannot be part of a stop text any more.
func (c *choice) hold(text string) string {
	if c.cut {
		return ""
	}
	c.held += text
	end := len(c.held)
	for _, s := range c.stops {
		if i := strings.Index(c.held, s); i >= 0 {
			end, c.cut = min(end, i), true
		}
	}
	if !c.cut {
		for _, s := range c.stops {
			for n := min(len(s)-1, len(c.held)); n > 0; n-- {
				if strings.HasSuffix(c.held, s[:n]) {
					end = min(end, len(c.held)-n)
					break
				}
			}
		}
	}
	text, c.held = c.held[:end], c.held[end:]
	return text
}
