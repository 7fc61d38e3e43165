package settings

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Settings come from the defaults, a run file, the environment and flags, each source stronger than the one before.
// No library such as koanf merges them: it uses one map, which loses the file and line of a value and ignores unknown
// keys, so that an error could not name the place or a likely key.

// A Resolved configuration remembers which setting decided each key, for messages.
type Resolved struct {
	sections []Section
	command  Command            // for messages
	decided  map[string]Setting // the deciding setting, by path
	defaults map[string]string  // the defaults as texts, by path
}

// mostErrors is how many wrong settings are reported at once, since finding a hint for each takes time.
const mostErrors = 100

// Resolve applies the sources, the weakest first, to the configuration that config points to, which has the defaults;
// see Sections. It first chooses the plug-ins that they name. Unknown keys and values of wrong types are reported
// together, up to mostErrors of them, each with its place. The configuration's Validate checks what the values mean;
// Locate adds places to its errors. Messages name the command and its flags.
func Resolve(config any, command Command, sources ...Source) (*Resolved, error) {
	r := &Resolved{command: command, decided: map[string]Setting{}, defaults: map[string]string{}}
	sources = slices.Clone(sources) // choose replaces elements
	for _, s := range Sections(config) {
		if p := plugOf(s.Pointer); p != nil {
			if err := r.choose(s.Name, p, keysOf(ownFields(s.Pointer)), sources); err != nil {
				return nil, err
			}
		}
	}
	r.sections = Sections(config) // with the fields of the plug-ins
	for _, t := range r.sections {
		for _, f := range t.Fields {
			r.defaults[t.Name+"."+f.Key] = f.text()
		}
	}
	var errs []error
	for _, s := range slices.Concat(sources...) {
		if err := r.apply(s); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Place, err))
		}
		if len(errs) == mostErrors {
			errs = append(errs, errors.New("there may be more: settings after these were not looked at"))
			break
		}
	}
	return r, errors.Join(errs...)
}

// Decided returns the setting that decided a key, such as "train.rounds": an empty one if the key has its default.
func (r *Resolved) Decided(path string) Setting { return r.decided[path] }

// Stated reports whether a source states a key.
func (r *Resolved) Stated(path string) bool { return r.decided[path].Key != "" }

// Locate prefixes each *Error that is joined to err with the place of the source that states its key, or names the
// flag of the command that states the key or could.
func (r *Resolved) Locate(err error) error {
	errs := Flatten(err)
	for i, err := range errs {
		bad, ok := errors.AsType[*Error](err)
		if !ok {
			continue
		}
		s, stated := r.decided[bad.Key]
		flag := r.command.Flags[bad.Key]
		switch {
		case stated && s.flag == "": // a run file, the environment or --set states it
			errs[i] = fmt.Errorf("%s: %w", s.Place, bad)
		case flag != "" && bad.Value == "": // no source states it, or the flag states an empty text
			errs[i] = fmt.Errorf("--%s is not set: %s", flag, strings.TrimSuffix(r.find(bad.Key).Tag("help"), " (required)"))
		case flag != "": // the flag states a wrong value, or no source states one and the default is wrong
			errs[i] = bad.ofFlag(flag)
		case bad.Value == "":
			errs[i] = fmt.Errorf("%s is not set: %s (--set %s=...)", bad.Key, bad.Remedy, bad.Key)
		}
	}
	return errors.Join(errs...)
}

// apply sets the field that the setting s names, by its key or by an older name of it (Field.also), and notes s as
// the one that decided it. --set and a flag on one command line may not state different values.
func (r *Resolved) apply(s Setting) error {
	at := slices.IndexFunc(r.sections, func(t Section) bool { return t.Name == s.Section })
	if at < 0 {
		return r.unknownSection(s)
	}
	t := r.sections[at]
	keys := keysOf(t.Fields)
	k := slices.Index(keys, s.Key)
	if also := slices.IndexFunc(t.Fields, func(f Field) bool { return f.also == s.Key && s.Key != "" }); k < 0 && also >= 0 {
		k, s.Key = also, keys[also]
	}
	switch {
	case s.Key == "" && s.Value == nil: // s is the header of the section
		return nil
	case k < 0:
		return r.unknownKey(s, t, keys)
	case t.list != "" && (s.Key == "name" || s.Key == "as"): // t is one of several plug-ins
		return fmt.Errorf("%s cannot be changed alone: state the list %s anew", s.Path(), t.list)
	}
	was := r.decided[s.Path()]
	a, b := typedPlace.FindString(was.Place), typedPlace.FindString(s.Place) // how the two are typed: --set, -- or not at all
	if a != "" && b != "" && a != b && fmt.Sprint(was.Value) != fmt.Sprint(s.Value) {
		return fmt.Errorf("%s says otherwise of %s: leave one of the two out", was.Place, s.Path())
	}
	r.decided[s.Path()] = s
	return s.assign(t.Fields[k].Value, t.Fields[k].choices()...)
}

// unknownKey explains the setting s, whose key is not one of keys, those of the section t.
func (r *Resolved) unknownKey(s Setting, t Section, keys []string) error {
	if _, tables := s.Value.([]map[string]any); tables && s.Key == tablesKey { // written as [[NAME]], see File
		return fmt.Errorf("%q must be one section: write [%s] on a line of its own", t.Name, t.Name)
	}
	if slices.Equal(keys, []string{tablesKey}) { // a section that is written as [[NAME]] alone
		return fmt.Errorf("key %q in [%s]: there may be several, so write [[%s]] above it, a table for each", s.Key, t.Name, t.Name)
	}
	where := "[" + t.Name + "]"
	if r.command.Name != "" {
		where += " of " + r.command.Name
	}
	if p := plugOf(t.Pointer); p != nil && (len(ownFields(t.Pointer)) == 1 || r.Stated(t.Name+".name")) {
		where += fmt.Sprintf(" for %q", p.chosen()) // the keys are those of the plug-in that is chosen
	}
	if t.list != "" {
		where = fmt.Sprintf("[[%s]] %q", t.list, strings.TrimPrefix(t.Name, t.list+"."))
	}
	return fmt.Errorf("unknown key %q in %s%s", s.Key, where, cmp.Or(r.foreign(s.Key, inFile), DidYouMean(s.Key, keys),
		r.elsewhere(s), "; it has "+strings.Join(keys, ", ")))
}

// unknownSection explains a setting whose section is unknown, or a key outside the sections. A file has a setting with
// an empty Key for the line [SECTION] and one for each key below it, and unknownSection is called for each of them. It
// reports either the line or the keys, and for the others returns nil; but it reports every key of another program.
func (r *Resolved) unknownSection(s Setting) error {
	names := namesOf(r.sections)
	// hint names a similar section, foreign what replaces a key of another program; "" if there is none.
	hint, foreign := DidYouMean(s.Section, names), r.foreign(s.Key, inFile)
	section, label, isPart := strings.Cut(s.Section, partOf) // of reward.use.LABEL, one of several plug-ins: reward, LABEL
	switch {
	case s.Section == "" && slices.Contains(names, s.Key):
		return fmt.Errorf("%q must be a section: write [%s] on a line of its own", s.Key, s.Key)
	case s.Section == "":
		return fmt.Errorf("key %q stands outside the sections%s", s.Key, cmp.Or(r.elsewhere(s), foreign,
			"; write it with its section, such as optimizer.learning_rate"))
	case s.Key != "" && foreign != "": // reported even if the line of its section is
		return fmt.Errorf("unknown key %q in [%s]%s", s.Key, s.Section, foreign)
	case r.command.Name != "" && hint == "" && s.Key != "": // Name is "" for onering train, which has all sections
		return fmt.Errorf("%s has no section [%s]", r.command.Name, s.Section)
	case s.InFile() && (s.Key != "" || r.command.Name != "" && hint == ""):
		return nil // for a key, since the line is reported; for the line where the case above reports each key
	case !isPart || !slices.Contains(names, section):
		return fmt.Errorf("unknown section [%s]%s", s.Section, hint)
	}
	var have []string // the labels that there are
	for _, t := range r.sections {
		if t.list == section+"."+listKey { // t is one of several plug-ins, a [[reward.use]]
			have = append(have, strings.TrimPrefix(t.Name, t.list+"."))
		}
	}
	if have == nil { // the section has one plug-in and no list
		at := slices.IndexFunc(r.sections, func(t Section) bool { return t.Name == section })
		return fmt.Errorf("there is no [[%s.use]] %q: the run has the one %s %q", section, label, section, valueOf(r.sections[at].Pointer, "name"))
	}
	return fmt.Errorf("there is no [[%s.use]] %q%s (there are %s)", section, label, DidYouMean(label, have), strings.Join(have, ", "))
}

// elsewhere says where the unknown key of s belongs, as the end of a message, such as "; it belongs in [train]": in
// another section, or in a list of several plug-ins in place of the one that the section has; "" if nowhere.
func (r *Resolved) elsewhere(s Setting) string {
	for _, t := range r.sections {
		// A section that may have a list of plug-ins, but has one: is the key one of the list or of its elements?
		if p := plugOf(t.Pointer); p != nil && t.Name == s.Section && p.newList != nil && !p.parts().IsValid() {
			list := p.newList()
			elements, _ := tagged(reflect.ValueOf(list).Elem(), "list")
			element := reflect.New(elements.Type().Elem()).Interface()
			if slices.Contains(keysOf(append(ownFields(element), ownFields(list)...)), s.Key) {
				return fmt.Sprintf("; it goes with several %ss, each in a [[%s.use]]", t.Name, t.Name)
			}
		}
		switch found := slices.Contains(keysOf(t.Fields), s.Key); {
		case found && t.list == "":
			return fmt.Sprintf("; it belongs in [%s]", t.Name)
		case found && t.list == s.Section+"."+listKey:
			return fmt.Sprintf("; it belongs in [[%s]], below name = %q", t.list, valueOf(t.Pointer, "name"))
		}
	}
	return ""
}

// choose chooses the plug-in p of a section as the strongest source names it: one by the key "name", or several by "use".
// ownKeys are the section's keys that do not belong to a plug-in. Settings for another plug-in in weaker sources are dropped
// with a warning, so that `--objective grpo` works with any run file; choose replaces elements of sources for that.
func (r *Resolved) choose(section string, p *plug, ownKeys []string, sources []Source) error {
	var strongest Setting                   // that names a plug-in or a list
	byDefault, strongestIn := p.chosen(), 0 // the plug-in of the defaults, and the index in sources of that with strongest
	for i, source := range sources {
		var s Setting // by which this source names a plug-in
		for _, x := range source {
			if x.Section != section || x.Key != "name" && (x.Key != listKey || p.newList == nil) {
				continue
			}
			if s.Key != "" && s.Key != x.Key {
				return fmt.Errorf("%s: %s goes without %s (%s): a run has one %s by its name, or a list", x.Place, x.Path(), s.Path(), s.Place, section)
			}
			s = x
		}
		if s.Key == "" {
			continue
		}
		strongest, strongestIn = s, i
		before := p.chosen()
		p.name.SetString("") // stays so for a list, which has no name
		if s.Key == "name" {
			if err := s.assign(p.name); err != nil {
				return fmt.Errorf("%s: %w", s.Place, err)
			}
		}
		for j := 0; j < i && p.chosen() != before; j++ { // weaker sources speak of the plug-in before
			sources[j] = dropOthers(sources[j], section, ownKeys, "for", before, "running", p.chosen())
		}
	}
	if strongest.Key != "" {
		r.decided[strongest.Path()] = strongest
	}
	if strongest.Key == listKey {
		return p.chooseParts(strongest, sources, strongestIn)
	}
	if now := p.name.String(); now != byDefault { // otherwise the plug-in has the defaults of the configuration
		if err := p.install(now); err != nil {
			return fmt.Errorf("%s: %w", strongest.Place, err)
		}
	}
	return nil
}

// dropOthers returns source without a section's settings for another plug-in, which are all but ownKeys and the section
// itself. It warns of what it drops, with reason, pairs of a name and a value.
func dropOthers(source Source, section string, ownKeys []string, reason ...any) (kept Source) {
	var dropped []string
	place := "" // of the first
	for _, s := range source {
		own := s.Section == section && (s.Key == "" || slices.Contains(ownKeys, s.Key))
		if own || !strings.HasPrefix(s.Section+".", section+".") {
			kept = append(kept, s)
			continue
		}
		dropped, place = append(dropped, s.Path()), cmp.Or(place, s.Place)
	}
	if dropped != nil {
		slog.Warn("settings of another "+section+" are not used", append([]any{"settings", strings.Join(dropped, ", "), "place", place}, reason...)...)
	}
	return kept
}

// mostParts bounds a list of plug-ins.
const mostParts = 64

// chooseParts chooses the plug-ins that the list s names, which is in the source with index listIn, and replaces s in
// that source by the settings of each. Names and lists in other sources do not count, nor settings for elements of
// weaker ones.
func (p *plug) chooseParts(s Setting, sources []Source, listIn int) error {
	tables := tablesOf(s.Value)
	if tables == nil || len(tables) > mostParts {
		return fmt.Errorf(`%s: %s: must be a list of tables, at most %d, such as [{name = "math"}, {name = "length", weight = 0.2}]`, s.Place, s.Path(), mostParts)
	}
	p.value.Set(reflect.ValueOf(p.newList())) // such as a reward that combines several
	parts := p.parts()                        // its list of them, empty until add appends
	var settings Source                       // of the elements
	var errs []error
	for i, table := range tables {
		at := func(path ...string) string { // the place of a key of the table, as exactly as the source knows it
			if s.inside == nil {
				return s.Place
			}
			return s.inside(append([]string{strconv.Itoa(i)}, path...)...)
		}
		label, err := p.add(parts, s, table)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: [[%s]] %d: %w", at(), s.Path(), i+1, err))
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(table)) {
			if key != "name" && key != "as" {
				settings = append(settings, Setting{Section: s.Path() + "." + label, Key: key, Place: at(key), Value: table[key]})
			}
		}
	}
	for i, source := range sources {
		sources[i] = slices.DeleteFunc(slices.Clone(source), func(x Setting) bool { // s goes, too: its elements take its place
			return x.Section == s.Section && (x.Key == "name" || x.Key == listKey) || i < listIn && strings.HasPrefix(x.Section, s.Path()+".")
		})
	}
	sources[listIn] = append(settings, sources[listIn]...) // in front: --set of one element wins over the list
	return errors.Join(errs...)
}

// add appends to parts the plug-in that a table of the list s describes, with its defaults and its label: the key
// "as", or else its name.
func (p *plug) add(parts reflect.Value, s Setting, table map[string]any) (label string, err error) {
	var given struct{ Name, As string }
	for _, f := range Fields(&given) {
		if value, ok := table[f.Key]; ok && err == nil {
			err = Setting{Section: s.Path(), Key: f.Key, Value: value}.assign(f.Value)
		}
	}
	if err != nil {
		return "", err
	}
	if given.Name == "" {
		return "", errors.New("it has no name: write name = and one of " + strings.Join(p.names(), ", "))
	}
	part, err := p.newPart(given.Name)
	if err != nil {
		return "", p.unknown(given.Name, err)
	}
	label = cmp.Or(given.As, given.Name)
	if !bareKey.MatchString(label) {
		return "", fmt.Errorf("as = %q: must consist of letters, digits, _ and -", label)
	}
	for i := range parts.Len() {
		if valueOf(parts.Index(i).Addr().Interface(), "as").String() == label {
			return "", fmt.Errorf("two parts are called %q: give one another name with as", label)
		}
	}
	parts.Set(reflect.Append(parts, reflect.ValueOf(part)))
	valueOf(parts.Index(parts.Len()-1).Addr().Interface(), "as").SetString(label)
	return label, nil
}

// tablesOf returns a list of tables, nil if value is not one.
func tablesOf(value any) []map[string]any {
	if tables, ok := value.([]map[string]any); ok {
		return tables
	}
	list, ok := value.([]any)
	if !ok {
		return nil
	}
	tables := make([]map[string]any, len(list))
	for i, x := range list {
		if tables[i], ok = x.(map[string]any); !ok {
			return nil
		}
	}
	return tables
}
