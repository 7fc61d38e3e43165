package settings

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// A Setting is one key and its value, as a source states it. A run file states typed values. Text from the command
// line and the environment is read as TOML if it is valid TOML, else as a string.
type Setting struct {
	// Section is empty for a key of a run file that stands outside the sections. Key and Value are empty for the header
	// of a section in a file.
	Section, Key string
	Place        string // the beginning of messages, such as "runs/pmpo.toml:12"
	Value        any    // the value as TOML decodes it

	text   *string                     // the text as it was given, unless a file states the value
	plain  bool                        // the text is not quoted, no list and no table, so it may be a string
	flag   string                      // the flag that states the value, which has the type of the field
	inside func(path ...string) string // the place inside a file's value that a message is about
}

// Path is the setting's name in --set.
func (s Setting) Path() string { return s.Section + "." + s.Key }

// InFile reports whether a run file states the setting.
func (s Setting) InFile() bool { return s.inside != nil }

// State returns a setting that a flag states in other words than its value, such as a switch.
func State(path, flag string, value any) Setting {
	section, key, _ := strings.Cut(path, ".")
	return Setting{Section: section, Key: key, Place: "--" + flag, Value: value}
}

// otherNames are further names that settings may be stated by.
var otherNames = map[string]string{"model.base_dtype": "lora.base_dtype"}

// currentNames returns the section and the key by which a setting is known here: lora, base_dtype for model, base_dtype.
func currentNames(section, key string) (string, string) {
	if section, key, ok := strings.Cut(otherNames[section+"."+key], "."); ok {
		return section, key
	}
	return section, key
}

// A Source states settings. If it states a key twice, the last one counts.
type Source []Setting

// Find returns the setting called path, such as train.rounds, of the strongest source that has it, else an empty one.
// The weakest source comes first.
func Find(path string, sources ...Source) Setting {
	for _, s := range slices.Backward(slices.Concat(sources...)) {
		if s.Path() == path {
			return s
		}
	}
	return Setting{}
}

// File reads the text data of a run file called name, in the order of its lines, with the header of each section as a
// setting without a key. Resolve finds out whether its keys exist.
func File(name string, data []byte) (Source, error) {
	var top map[string]any
	if _, err := ReadTOML(data, &top); err != nil && otherForm.Match(data) {
		return nil, fmt.Errorf("%s looks like YAML or JSON, and a run file is TOML: below [optimizer] stands "+
			"learning_rate = 1e-6; docs/settings.md has the keys, and a key of TRL or verl in such a file, or behind "+
			"--set, is answered with the one that it is here", name)
	} else if err != nil {
		return nil, SyntaxError(name, err)
	}
	lines := keyLines(string(data))
	line := func(path ...string) (n int) { // of the key at path, or else of the nearest that holds it
		for ; n == 0 && len(path) > 0; path = path[:len(path)-1] {
			n = lines[strings.Join(path, "\x00")]
		}
		return n
	}
	var list Source
	add := func(section, key string, value any, path ...string) {
		section, key = currentNames(section, key)
		list = append(list, Setting{Section: section, Key: key, Value: value, Place: place(name, line(path...)), inside: func(inner ...string) string {
			return place(name, line(slices.Concat(path, inner)...))
		}})
	}
	for section, value := range top {
		table, ok := value.(map[string]any)
		if _, isList := value.([]map[string]any); isList { // the tables under [[stream]] are the key list of [stream]
			table, ok = map[string]any{tablesKey: value}, true
		}
		if !ok { // a key outside the sections
			add("", section, value, section)
			continue
		}
		add(section, "", nil, section)
		for key, value := range table {
			add(section, key, value, section, key)
		}
	}
	slices.SortFunc(list, func(a, b Setting) int { // a key that another section has now is sorted to the head of that section
		return cmp.Or(line(a.Section, a.Key)-line(b.Section, b.Key), strings.Compare(a.Path(), b.Path()))
	})
	return list, nil
}

// Saved is File for the run.toml of a run folder. If the folder has checkpoints, a run has written it with all
// settings, of which output.dir is the last; or, with a model alone, somebody.
func Saved(name string, data []byte) (Source, error) {
	list, err := File(name, data)
	if _, begun := os.Stat(filepath.Join(filepath.Dir(name), "checkpoints")); err == nil && begun == nil && Find("output.dir", list).Key == "" &&
		(len(list) == 0 || slices.ContainsFunc(list, func(s Setting) bool { return s.Section != "model" })) {
		err = fmt.Errorf("%s is damaged: it is empty or was cut, since it lacks output.dir, which every run states; restore it from a copy", name)
	}
	return list, err
}

// tablesKey is the key of a section whose value may also be stated as tables of the section's
// name, such as [[stream]].
const tablesKey = "list"

// maxNesting bounds how deeply lists, tables and dotted names of a TOML document are
// nested: for a depth of a hundred thousand the library needs gigabytes.
const maxNesting = 32

// ReadTOML reads a TOML document into v, as toml.Decode does, unless it is nested too deep.
func ReadTOML(text []byte, v any) (toml.MetaData, error) {
	depth, dots := 0, 0 // the open brackets and braces, and the dots of the newest name, such as a.b.c
	for _, c := range commentsAndStrings.ReplaceAll(text, []byte("_")) {
		switch c {
		case '[', '{':
			depth, dots = depth+1, 0
		case ']', '}':
			depth--
		case '.':
			dots++
		case '\n', '=', ',':
			dots = 0
		}
		if depth > maxNesting || dots > maxNesting {
			return toml.MetaData{}, fmt.Errorf("lists, tables or names stand inside each other more than %d deep", maxNesting)
		}
	}
	return toml.Decode(string(text), v)
}

// Sets reads the values of --set, each section.key=value.
func Sets(sets []string) (Source, error) {
	var list Source
	for _, set := range sets {
		path, text, ok := strings.Cut(set, "=")
		section, key, dotted := strings.Cut(path, ".")
		if !dotted {
			section, key = "", path // the error for an unknown key says that the section is missing
		}
		if !ok || path == "" {
			return nil, fmt.Errorf("--set %q: write section.key=value, such as optimizer.learning_rate=1e-6", set)
		}
		if strings.HasPrefix("."+key, partOf) { // a section of several plug-ins has two dots: reward.use.PART.KEY
			at := strings.LastIndexByte(path, '.')
			section, key = path[:at], path[at+1:]
		}
		list = append(list, ofText(strings.TrimSpace(section), strings.TrimSpace(key), "--set "+set, strings.TrimSpace(text)))
	}
	return list, nil
}

// otherVariables are variables that begin like settings and are not settings of a run.
var otherVariables = []string{"ONERING_CACHE", "ONERING_OFFLINE", "ONERING_MPI", "ONERING_NCCL", "ONERING_UNPINNED", "ONERING_KERNELS", "ONERING_NO_KERNELS"}

// Environment reads the settings of a configuration in environ, whose entries are NAME=value:
// ONERING_OPTIMIZER_LEARNING_RATE is optimizer.learning_rate. An empty variable does not count, and one that names no
// section is warned about.
func Environment(config any, environ []string) Source {
	var list Source
	names := namesOf(Sections(config))
	for _, entry := range environ {
		name, text, _ := strings.Cut(entry, "=")
		rest, ok := strings.CutPrefix(name, "ONERING_")
		if !ok || text == "" || slices.Contains(otherVariables, name) {
			continue
		}
		section, key, ok := strings.Cut(strings.ToLower(rest), "_")
		if !ok || !slices.Contains(names, section) {
			slog.Warn("an environment variable names no setting", "name", name, "want", "ONERING_SECTION_KEY")
			continue
		}
		list = append(list, ofText(section, key, name, text))
	}
	slices.SortFunc(list, func(a, b Setting) int { return strings.Compare(a.Place, b.Place) })
	return list
}

// ofText makes a setting of text from the command line or the environment, which is read as TOML if it is valid TOML,
// else as a string.
func ofText(section, key, place, text string) Setting {
	section, key = currentNames(section, key)
	s := Setting{Section: section, Key: key, Place: place, Value: text, text: &text, plain: true}
	var one map[string]any
	// Text with a line break could hold further keys, so it counts as a string.
	if _, err := ReadTOML([]byte("value = "+text), &one); err == nil && len(one) == 1 && one["value"] != nil {
		s.Value = one["value"]
		s.plain = !strings.ContainsAny(strings.TrimSpace(text)[:1], `"'[{`)
	}
	return s
}

func place(name string, line int) string {
	if line <= 0 {
		return name
	}
	return fmt.Sprintf("%s:%d", name, line)
}

// SyntaxError prefixes an error of the TOML library with its file and line.
func SyntaxError(name string, err error) error {
	if parse, ok := errors.AsType[toml.ParseError](err); ok {
		message := strings.NewReplacer("toml: ", "", "unexpected EOF", "the file ends in the middle", "or EOF",
			"or the end", " for int64", "", " for float64", "").Replace(parse.Message)
		return fmt.Errorf("%s: %s", place(name, parse.Position.Line), message)
	}
	if m := mismatch.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1])
		return fmt.Errorf("%s: %s has a value of another kind than belongs there", place(name, line), m[2])
	}
	return fmt.Errorf("%s: %w", name, err)
}

var (
	// otherForm matches what a JSON document begins with, and lines of YAML.
	otherForm = regexp.MustCompile(`\A\s*\{|(?m)^(---\s*$|\s*(- )?["']?[A-Za-z_][\w.-]*["']?:(\s|$))`)
	// mismatch matches what the TOML library says of a value that does not fit.
	mismatch = regexp.MustCompile(`^toml: (?:line (\d+) )?\(last key "(.*?)"\): `)
	// typedPlace matches how the place of a setting on the command line begins.
	typedPlace = regexp.MustCompile(`^--(set )?`)
	// commentsAndStrings matches the comments and strings of a TOML document.
	commentsAndStrings = regexp.MustCompile(`(?s)#[^\n]*|"{3}(?:\\.|[^\\])*?"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\])*"|'[^']*'`)
	bareKey            = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	// statement matches the beginning of a line that has a header, or a key and a value.
	statement = regexp.MustCompile(`^\s*(\[{0,2})([^=\]]*)[=\]]`)
)

// keyLines returns the line on which a valid TOML document first has each key, by the key's path with \x00 between
// its elements; in a list of tables the tables count from 0 and their number is an element. Keys in brackets or
// braces are left out. The TOML library states lines only in errors.
func keyLines(text string) map[string]int {
	text = commentsAndStrings.ReplaceAllStringFunc(text, func(s string) string { // they may hold brackets and =
		if inner := strings.Trim(s, `"'`); bareKey.MatchString(inner) {
			return inner // a key in quotes
		}
		return "_" + strings.Repeat("\n", strings.Count(s, "\n"))
	})
	lines, tables := map[string]int{}, map[string]int{} // tables counts the tables of each list
	var table []string                                  // the path of the newest header
	depth := 0                                          // how many brackets are open
	for n, line := range strings.Split(text, "\n") {
		if m := statement.FindStringSubmatch(line); m != nil && depth == 0 { // m[1] is [ or [[ of a header, m[2] the name
			path := slices.Clone(table)
			if m[1] != "" {
				path = nil
			}
			note := func(name string) string { // the line of one more element of path
				path = append(path, strings.TrimSpace(name))
				key := strings.Join(path, "\x00")
				lines[key] = cmp.Or(lines[key], n+1)
				return key
			}
			names := strings.Split(m[2], ".")
			for i, name := range names {
				key := note(name)
				if m[1] == "[[" && i == len(names)-1 {
					tables[key]++
				}
				if tables[key] > 0 {
					note(strconv.Itoa(tables[key] - 1))
				}
			}
			if m[1] != "" {
				table = path
			}
		}
		depth += strings.Count(line, "[") + strings.Count(line, "{") - strings.Count(line, "]") - strings.Count(line, "}")
	}
	return lines
}
