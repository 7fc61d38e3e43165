// Package peers reads configs of other trainers, TRL's GRPOConfig and verl's, and says which
// run file of onering means the same: the same loss, advantages, batches, optimizer and
// sampling. What a config leaves out has the peer's default, so it stands in the run file.
//
// Read on in trl.go and verl.go, which follow the versions that they name.
package peers

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Run is what a config of a peer means here.
type Run struct {
	Settings []Setting // in the order of a run file
	// Notes say where the peer's code differs from its paper or its keys, and which of the two the settings follow.
	Notes []string
	// Refused are the keys that no setting means the same as. If there are any, the run file
	// would train with another gradient.
	Refused []Refusal
	// Aside are keys without an effect on what is learned, such as those of devices, logging and saving.
	Aside []string
}

// A Setting is a key of a run file, such as rollout.temperature, with its value.
type Setting struct {
	Key   string
	Value any    // a string, float64, int, bool or []string
	Note  string // where the value comes from; may be empty
}

// A Refusal is a key of a peer and why it cannot be had here.
type Refusal struct{ Key, Reason string }

// sections are the order of a run file.
var sections = []string{"model", "lora", "data", "rollout", "reward", "objective", "optimizer", "train"}

// TOML returns the settings as the text of a run file.
func (r *Run) TOML() string {
	var b strings.Builder
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "# %s\n", note)
	}
	for _, section := range sections {
		head := "\n[" + section + "]\n"
		for _, s := range r.Settings {
			key, ok := strings.CutPrefix(s.Key, section+".")
			if !ok {
				continue
			}
			b.WriteString(head + key + " = " + literal(s.Value))
			head = ""
			if s.Note != "" {
				b.WriteString(" # " + s.Note)
			}
			b.WriteByte('\n')
		}
	}
	return strings.TrimPrefix(b.String(), "\n")
}

// literal writes a value as TOML.
func literal(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case []string:
		list := make([]string, len(v))
		for i, s := range v {
			list[i] = strconv.Quote(s)
		}
		return "[" + strings.Join(list, ", ") + "]"
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return s
	}
	return fmt.Sprint(v)
}

// A config is a peer's config while it is translated: its values by dotted key. Each read of a key takes it out of unread.
type config struct {
	Run
	values map[string]any
	unread map[string]bool
}

// newConfig reads a mapping in YAML, of which JSON is a part. Keys of inner mappings are joined by dots.
func newConfig(text []byte) (*config, error) {
	var top map[string]any
	if err := yaml.Unmarshal(text, &top); err != nil {
		return nil, fmt.Errorf("not a mapping in YAML or JSON: %v", err)
	}
	c := &config{values: map[string]any{}, unread: map[string]bool{}}
	c.flatten("", top)
	return c, nil
}

// flatten notes the values of m, and of the mappings in it, by their keys with prefix in front.
func (c *config) flatten(prefix string, m map[string]any) {
	for key, value := range m {
		if inner, ok := value.(map[string]any); ok && len(inner) > 0 {
			c.flatten(prefix+key+".", inner)
			continue
		}
		c.values[prefix+key], c.unread[prefix+key] = value, true
	}
}

// take returns the value of a key, nil if it is not given or null. A key that nobody takes is refused by finish.
func (c *config) take(key string) any {
	delete(c.unread, key)
	return c.values[key]
}

// passOver takes keys whose values have no effect here, or were read by another name.
func (c *config) passOver(keys ...string) {
	for _, key := range keys {
		delete(c.unread, key)
	}
}

// given reports whether a key has a value.
func (c *config) given(key string) bool { return c.values[key] != nil }

// text returns the text of a key, or its default.
func (c *config) text(key, otherwise string) string {
	if v := c.take(key); v != nil {
		return fmt.Sprint(v)
	}
	return otherwise
}

// number returns the number of a key, or its default. A text that is a number counts, since
// YAML takes 1e-6 as a text.
func (c *config) number(key string, otherwise float64) float64 {
	switch v := c.take(key).(type) {
	case nil:
		return otherwise
	case bool, []any: // no numbers
	default:
		if x, err := strconv.ParseFloat(fmt.Sprint(v), 64); err == nil {
			return x
		}
	}
	c.refuse(key, fmt.Sprintf("%v is not a number", c.values[key]))
	return otherwise
}

// count returns the whole number of a key, or its default, also if it is another number, which is refused.
func (c *config) count(key string, otherwise int) int {
	x := c.number(key, float64(otherwise))
	if x != math.Trunc(x) || math.Abs(x) > 1<<40 {
		c.refuse(key, fmt.Sprintf("%v is not a whole number", x))
		return otherwise
	}
	return int(x)
}

// on returns the truth value of a key, or its default.
func (c *config) on(key string, otherwise bool) bool {
	v := c.take(key)
	if v == nil {
		return otherwise
	}
	b, err := strconv.ParseBool(strings.ToLower(fmt.Sprint(v)))
	if err != nil {
		c.refuse(key, fmt.Sprintf("%v is not true or false", v))
	}
	return b
}

// list returns the texts of a key: those of a list, or the only one.
func (c *config) list(key string) (texts []string) {
	switch v := c.take(key).(type) {
	case nil:
	case []any:
		for _, x := range v {
			texts = append(texts, fmt.Sprint(x))
		}
	default:
		texts = []string{fmt.Sprint(v)}
	}
	return texts
}

func (c *config) set(key string, value any) { c.setAs(key, value, "") }

func (c *config) setAs(key string, value any, note string) {
	c.Settings = append(c.Settings, Setting{key, value, note})
}

// setIf adds a setting if the condition holds.
func (c *config) setIf(condition bool, key string, value any) {
	if condition {
		c.set(key, value)
	}
}

// carryUnless sets the number of key as our setting of the same meaning, unless it is the usual one, the default of both.
// It reports whether it did.
func (c *config) carryUnless(key, ours string, usual float64) (given bool) {
	x := c.number(key, usual)
	c.setIf(x != usual, ours, x)
	return x != usual
}

func (c *config) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

func (c *config) refuse(key, reason string) {
	if !slices.ContainsFunc(c.Refused, func(r Refusal) bool { return r.Key == key }) {
		c.Refused = append(c.Refused, Refusal{key, reason})
	}
}

// refuseUnless refuses a key that has another value than the only one that can be had.
func (c *config) refuseUnless(key string, value any, reason string) {
	if v := c.take(key); v != nil && fmt.Sprint(v) != fmt.Sprint(value) {
		c.refuse(key, reason)
	}
}

// takeBelow returns, in alphabetical order, the keys of a mapping that were not read yet, without that of the
// mapping. It marks them as read.
func (c *config) takeBelow(key string) (keys []string) {
	for _, name := range slices.Sorted(maps.Keys(c.values)) {
		if inner, ok := strings.CutPrefix(name, key+"."); ok && c.unread[name] {
			c.passOver(name)
			keys = append(keys, inner)
		}
	}
	return keys
}

// refuseAny refuses a mapping or a value that is not empty.
func (c *config) refuseAny(key, reason string) {
	if len(c.takeBelow(key)) > 0 || len(c.list(key)) > 0 && c.text(key, "") != "map[]" {
		c.refuse(key, reason)
	}
}

// arguments sets the names that the chat template reads.
func (c *config) arguments(key string) {
	var args []string
	for _, name := range c.takeBelow(key) {
		args = append(args, fmt.Sprintf("%s=%v", name, c.values[key+"."+name]))
	}
	c.passOver(key)
	c.setIf(len(args) > 0, "model.template_args", args)
}

// model sets the model, and the template if it is the one of a chat model.
func (c *config) model(path string, chat bool) {
	if path == "" {
		path = "MODEL"
		c.note("the config names no model: write its folder or name in place of MODEL")
	}
	c.set("model.path", path)
	c.setIf(chat, "model.template", "chat")
}

// noteRewards notes keys that name rewards, which are programs there.
func (c *config) noteRewards(keys ...string) {
	for _, key := range keys {
		if names := c.list(key); len(names) > 0 {
			c.note("%s = %s is not translated: [reward] pays this run, by math unless you choose another (docs/rewards.md)",
				key, strings.Join(names, ", "))
		}
	}
}

// data sets the files of problems, for which a placeholder stands if there are none.
func (c *config) data(files []string) {
	switch len(files) {
	case 0:
		c.setAs("data.train", "PROBLEMS", "the config does not name the data: write its file here")
	case 1:
		c.set("data.train", files[0])
	default:
		c.set("data.train", files)
	}
}

// divided returns a / b, and refuses key if there is a remainder.
func (c *config) divided(key string, a, b int, reason string) int {
	if b < 1 || a < 1 || a%b != 0 {
		c.refuse(key, fmt.Sprintf("%d / %d: %s", a, b, reason))
		return 1
	}
	return a / b
}

// rounds sets the length of the run in rounds: steps if they are given, of which perRound make a round, else so many
// passes over rows of data, of which a round takes prompts. passesKey is the key that is refused if neither is known.
func (c *config) rounds(steps, perRound int, passes float64, rows, prompts int, passesKey string) {
	switch {
	case steps > 0:
		c.set("train.rounds", max(1, (steps+perRound-1)/perRound))
		if steps%perRound != 0 {
			c.note("%d steps end inside a round of %d: the run goes on to the round's end", steps, perRound)
		}
	case rows > 0:
		c.setAs("train.rounds", int(math.Ceil(passes*float64(rows)/float64(prompts))), fmt.Sprintf("%v passes over %d rows", passes, rows))
	default:
		c.refuse(passesKey, fmt.Sprintf("%v passes over data whose size is not known here: give --rows N", passes))
	}
}

// schedule sets the learning rate's course by its name in transformers, which stands in key. warmup is a number of
// steps or, below 1, a share of them, as optimizer.warmup is.
func (c *config) schedule(key, shape string, warmup float64) {
	c.setIf(warmup > 0, "optimizer.warmup", whole(warmup))
	switch shape {
	case "linear", "cosine":
		c.set("optimizer.schedule", shape)
	case "constant", "constant_with_warmup":
		c.set("optimizer.schedule", "constant")
	default:
		c.refuse(key, fmt.Sprintf("the schedule %q: there are constant, linear and cosine", shape))
	}
}

// whole returns a number without a fraction as an int, so that it is written as one.
func whole(x float64) any {
	if x >= 1 && x == math.Trunc(x) {
		return int(x)
	}
	return x
}

// finish sorts the keys that were not read into those that are without an effect, which begin like one of aside, and
// refused ones, and returns the Run.
func (c *config) finish(peer string, aside []string) *Run {
	for key := range c.unread {
		if c.values[key] == nil || beginsWithAny(key, aside) {
			c.Aside = append(c.Aside, key)
		} else {
			c.refuse(key, "this key of "+peer+" is not known here: remove it if it does not change what is learned")
		}
	}
	slices.Sort(c.Aside)
	slices.SortStableFunc(c.Refused, func(a, b Refusal) int { return strings.Compare(a.Key, b.Key) })
	return &c.Run
}

// beginsWithAny reports whether a key has one of the beginnings.
func beginsWithAny(key string, aside []string) bool {
	return slices.ContainsFunc(aside, func(begin string) bool { return strings.HasPrefix(key, begin) })
}
