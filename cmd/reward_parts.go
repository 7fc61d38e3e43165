package cmd

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"onering/internal/settings"
	"onering/reward"
)

// usePath is the key of the list of rewards. A setting of one of them is in the
// section usePath.PART.
const usePath = "reward.use"

// mostParts bounds the list: finding the lines of its keys reads the file for each entry.
const mostParts = 64

// An entry is one table of that list.
type entry struct {
	place    string // of its first line
	settings []setting
}

// entriesOf returns the tables of s, at the place of s; nil if it is no list of
// tables, or has too many.
func entriesOf(s setting, place string) []entry {
	var tables []map[string]toml.Primitive
	if s.meta.PrimitiveDecode(s.primitive, &tables) != nil || len(tables) > mostParts {
		return nil
	}
	entries := []entry{}
	for _, table := range tables {
		e := entry{place: place}
		for key, primitive := range table {
			x := setting{key: key, place: place, meta: s.meta, primitive: primitive}
			x.value, x.order = locate(s.meta, primitive)
			e.settings = append(e.settings, x)
		}
		slices.SortFunc(e.settings, func(a, b setting) int { return strings.Compare(a.key, b.key) })
		entries = append(entries, e)
	}
	return entries
}

// useHeader is a line that begins a table of the list, or looks so inside a text.
var useHeader = regexp.MustCompile(`(?m)^[ \t]*\[\[[ \t]*["']?reward["']?[ \t]*\.[ \t]*["']?use["']?[ \t]*\]\]`)

// fileEntries are the entries of s, which stands in the run file data, with the lines
// of their settings. The TOML library knows for the keys of a list of tables only the
// lines of the last table, so the file is read again up to the end of each. A list
// that is written in brackets has one place.
func fileEntries(name string, data []byte, s setting) []entry {
	entries := entriesOf(s, s.place)
	headers := useHeader.FindAllIndex(data, mostParts+1)
	if len(headers) > mostParts {
		return entries
	}
	var begins []int
	for _, at := range headers {
		var any map[string]toml.Primitive
		if _, err := toml.Decode(string(data[:at[0]]), &any); err == nil { // not inside a text
			begins = append(begins, at[0])
		}
	}
	if len(begins) != len(entries) {
		return entries
	}
	for i := range entries {
		end := len(data)
		if i+1 < len(begins) {
			end = begins[i+1]
		}
		var top struct {
			Reward struct{ Use []map[string]toml.Primitive }
		}
		meta, err := toml.Decode(string(data[:end]), &top)
		if err != nil || len(top.Reward.Use) != i+1 {
			return entries
		}
		entries[i].place = place(name, 1+strings.Count(string(data[:begins[i]]), "\n"))
		for j := range entries[i].settings {
			x := &entries[i].settings[j]
			_, x.order = locate(&meta, top.Reward.Use[i][x.key])
			x.place = place(name, x.order)
		}
	}
	return entries
}

// chooseParts makes the reward of the run of those that s lists, which is in the layer
// with index last, and puts the settings of its parts in the place of s. The names and
// lists of other layers do not count.
func (r *resolved) chooseParts(s setting, layers []layer, last int) ([]layer, error) {
	if s.entries == nil {
		return nil, fmt.Errorf(`%s: %s: must be a list of tables, at most %d, such as [{name = "math"}, {name = "length", weight = 0.2}]`, s.place, s.path(), mostParts)
	}
	several := &reward.Combined{Combine: "sum"}
	var of layer
	var errs []error
	for i, e := range s.entries {
		p, err := e.part()
		if err == nil && slices.ContainsFunc(several.Parts, func(q reward.Part) bool { return q.As == p.As }) {
			err = fmt.Errorf("two parts are called %q: give one another name with as", p.As)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: [[%s]] %d: %w", e.place, usePath, i+1, err))
			continue
		}
		several.Parts = append(several.Parts, p)
		for _, x := range e.settings {
			if x.section = usePath + "." + p.As; x.key != "name" && x.key != "as" {
				of = append(of, x)
			}
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	r.Reward.Rule = several
	r.decided[s.path()] = s
	for i, l := range layers {
		layers[i] = slices.DeleteFunc(slices.Clone(l), func(x setting) bool {
			return x.path() == "reward.name" || x.path() == usePath || i < last && strings.HasPrefix(x.section, usePath)
		})
	}
	layers[last] = append(of, layers[last]...)
	return layers, nil
}

// part makes the part that e describes, with the defaults of its reward.
func (e entry) part() (p reward.Part, err error) {
	for _, s := range e.settings {
		for _, f := range settings.Fields(&p) {
			if f.Key != s.key || s.key != "name" && s.key != "as" {
				continue
			}
			s.section = usePath
			if err := assign(s, f.Value); err != nil {
				return p, err
			}
		}
	}
	if p.Name == "" {
		return p, errors.New("it has no name: write name = and one of " + strings.Join(reward.Names(), ", "))
	}
	as := p.As
	if p, err = reward.NewPart(p.Name); err != nil {
		return p, unknownPlugin("reward", p.Name, reward.Names())
	}
	if as != "" {
		p.As = as
	}
	if !reward.IsLabel(p.As) {
		err = fmt.Errorf("as = %q: must consist of letters, digits, _ and -", p.As)
	}
	return p, err
}

// unknownPart says that the run's reward has no part of that name.
func (r *resolved) unknownPart(name string) error {
	several, ok := r.Reward.Rule.(*reward.Combined)
	if !ok {
		return fmt.Errorf("there is no [[%s]] %q: the run has the one reward %q", usePath, name, r.Reward.Name)
	}
	var have []string
	for _, p := range several.Parts {
		have = append(have, p.As)
	}
	return fmt.Errorf("there is no [[%s]] %q%s (there are %s)", usePath, name, didYouMean(name, have), strings.Join(have, ", "))
}

// elsewhere says where the unknown key of s belongs, as the end of a message.
func (r *resolved) elsewhere(s setting) string {
	if s.section != "reward" {
		return elsewhere(s.section, s.key)
	}
	several, ok := r.Reward.Rule.(*reward.Combined)
	if !ok {
		for _, f := range slices.Concat(settings.Fields(new(reward.Combined)), settings.Fields(new(reward.Part))) {
			if f.Key == s.key {
				return fmt.Sprintf("; it goes with several rewards, each in a [[%s]]", usePath)
			}
		}
		return elsewhere(s.section, s.key)
	}
	for _, p := range several.Parts {
		if slices.Contains(keysOf(slices.Concat(settings.Fields(&p), settings.Fields(p.Reward))), s.key) {
			return fmt.Sprintf("; it belongs in [[%s]], below name = %s", usePath, strconv.Quote(p.Name))
		}
	}
	return ""
}
