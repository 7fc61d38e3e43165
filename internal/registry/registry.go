// Package registry holds by name what packages register in init: objectives, rewards, families of models, optimizers.
package registry

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"onering/internal/settings"
)

// A Table holds entries by name; the zero Table is empty. Its methods may be called concurrently.
type Table[T any] struct {
	mutex   sync.RWMutex
	entries map[string]T
	twice   map[string]bool // names that were added more than once
}

// Add adds an entry and reports whether the name was free. A name that is added twice keeps its first entry, and Get
// returns an error for it, which tells an author that a plug-in has the name of another one.
func (t *Table[T]) Add(name string, entry T) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.entries == nil {
		t.entries, t.twice = map[string]T{}, map[string]bool{}
	}
	if _, taken := t.entries[name]; taken {
		t.twice[name] = true
		return false
	}
	t.entries[name] = entry
	return true
}

// Get returns an entry, or the zero value if the name is unknown. If the
// name was added twice, it returns the first entry with an error.
func (t *Table[T]) Get(name string) (entry T, err error) {
	t.mutex.RLock()
	defer t.mutex.RUnlock()
	if t.twice[name] {
		err = fmt.Errorf("%q is registered twice: give your own another name", name)
	}
	return t.entries[name], err
}

// Names returns all names in alphabetical order.
func (t *Table[T]) Names() []string {
	t.mutex.RLock()
	defer t.mutex.RUnlock()
	return slices.Sorted(maps.Keys(t.entries))
}

// Makers are constructors by name; each returns a fresh value with its defaults.
type Makers[T any] struct {
	Package, Kind string // for messages: their package, and the kind of what they make
	table         Table[func() T]
}

// Register adds new by a name. It panics if the name is empty or new is nil, which are mistakes in the program.
func (m *Makers[T]) Register(name string, new func() T) {
	if name == "" || new == nil {
		panic(fmt.Sprintf("%s: to register %s %q takes a name and a constructor", m.Package, m.Kind, name))
	}
	m.table.Add(name, new)
}

// New returns a fresh value. The error of an unknown name lists the known ones. A name that
// is registered twice gives a value and an error; a default value may ignore the error.
func (m *Makers[T]) New(name string) (x T, err error) {
	new, err := m.table.Get(name)
	if new == nil {
		return x, fmt.Errorf("%s: unknown %s %q (have %s; forgotten import?)", m.Package, m.Kind, name, strings.Join(m.Names(), ", "))
	}
	if err != nil {
		err = fmt.Errorf("%s: %s %w", m.Package, m.Kind, err)
	}
	return new(), err
}

// Names returns all names in alphabetical order.
func (m *Makers[T]) Names() []string { return m.table.Names() }

// A Failure is a rule that a plug-in breaks.
type Failure struct {
	// Rule is the name of the rule.
	Rule string
	// Explanation is the rule itself.
	Explanation string
	// Err describes what the check found.
	Err error
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %s: %v", f.Rule, f.Explanation, f.Err) }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// A Rule is one case of the conformance suite of a kind of plug-in.
type Rule[T any] struct {
	Name, Explanation string
	Check             func(new func() T) error
}

// A Suite is the conformance suite of a kind of plug-in: the rules that every plug-in must follow.
type Suite[T any] struct {
	New   func(name string) (T, error) // returns a registered plug-in by name
	Rules []Rule[T]
	// Hopeless, if not nil, reports whether no rule can be checked after one that failed in this way.
	Hopeless func(error) bool
	// Exempt, if not nil, says which rules a plug-in has to break, and why.
	Exempt func(T) map[string]string
}

// A tester is a *testing.T, whose package the program does not import.
type tester[TB any] interface {
	Helper()
	Error(...any)
	Logf(string, ...any)
	Fatal(...any)
	Run(string, func(TB)) bool
}

// Run checks the plug-ins that new returns, each rule in a subtest of its own.
func Run[TB tester[TB], T any](t TB, s Suite[T], new func() T) {
	t.Helper()
	exempt, err := s.exemptions(new)
	if err != nil {
		t.Error(err)
	}
	for _, r := range s.Rules {
		t.Run(r.Name, func(t TB) {
			if why := exempt[r.Name]; why != "" {
				t.Logf("exempt: %s", why)
			}
			if err := r.apply(new, exempt); err != nil {
				t.Error(err)
			}
		})
	}
}

// Named returns the constructor of a registered plug-in. If there is none, the test ends.
func (s Suite[T]) Named(t interface{ Fatal(...any) }, name string) func() T {
	return func() T {
		x, err := s.New(name)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

// Check returns what Run would report: nil, or joined errors each of which is a *Failure.
func (s Suite[T]) Check(new func() T) error {
	exempt, err := s.exemptions(new)
	errs := []error{err}
	for _, r := range s.Rules {
		err := r.apply(new, exempt)
		errs = append(errs, err)
		if err != nil && s.Hopeless != nil && s.Hopeless(err) {
			errs = append(errs, fmt.Errorf("the rules after %s were not checked", r.Name))
			break
		}
	}
	return errors.Join(errs...)
}

// Names returns the names of the rules in the order in which they are checked.
func (s Suite[T]) Names() (names []string) {
	for _, r := range s.Rules {
		names = append(names, r.Name)
	}
	return names
}

// exemptions returns the rules that a plug-in says it cannot follow. It refuses unknown
// rules, and rules without a reason.
func (s Suite[T]) exemptions(new func() T) (exempt map[string]string, err error) {
	if s.Exempt == nil {
		return nil, nil
	}
	exempt = s.Exempt(new())
	for _, name := range slices.Sorted(maps.Keys(exempt)) {
		i := slices.Index(s.Names(), name)
		switch {
		case i < 0:
			return exempt, &Failure{name, "Exemptions names rules of the suite", errors.New("there is no such rule")}
		case strings.TrimSpace(exempt[name]) == "":
			return exempt, &Failure{name, s.Rules[i].Explanation, errors.New("Exemptions must say why this rule cannot be kept")}
		}
	}
	return exempt, nil
}

// apply runs the check of a rule, and closes the plug-ins that it made. It returns a *Failure, or nil; a plug-in that
// panics breaks the rule. exempt are the rules that the plug-in has to break, with the reasons: for one of them it is
// a failure to keep it.
func (r Rule[T]) apply(new func() T, exempt map[string]string) (err error) {
	var made []T
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("a method or the constructor panics: %w", panicked(v))
		}
		for _, x := range made {
			if c, ok := any(x).(io.Closer); ok {
				c.Close()
			}
		}
		if err != nil {
			err = &Failure{r.Name, r.Explanation, err}
		}
	}()
	why, exempted := exempt[r.Name]
	err = r.Check(func() T {
		x := new()
		made = append(made, x)
		return x
	})
	switch {
	case !exempted:
		return err
	case err == nil:
		return fmt.Errorf("the rule is kept, from which Exemptions excludes it (%q): remove the exemption", why)
	}
	return nil
}

// panicked returns what a panic was given as an error.
func panicked(v any) error {
	if err, is := v.(error); is {
		return err
	}
	return fmt.Errorf("%v", v)
}

// AtOnce calls f n times at the same time and joins the errors. A panic becomes an error.
func AtOnce(n int, f func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range errs {
		all.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					errs[i] = fmt.Errorf("a method panics: %w", panicked(v))
				}
			}()
			errs[i] = f(i)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// CheckDefaults is the Check of the rule that a constructor returns a fresh value every time, with defaults that
// settings.Check accepts and a toml name of its own on every exported field, none of taken. example is such a name
// for the message.
func CheckDefaults[T any](new func() T, taken map[string]bool, example string) error {
	x := new()
	v := reflect.ValueOf(x)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("the constructor returns a %T; it must be a pointer to a struct, so that settings can be decoded into it", x)
	}
	if v.Elem().Type().Size() > 0 && any(x) == any(new()) {
		return errors.New("the constructor returned the same value twice")
	}
	if err := settings.Check(x); err != nil {
		return fmt.Errorf("the defaults are not valid: %w", err)
	}
	return checkFields(v.Elem().Type(), taken, example)
}

// checkFields looks for a toml name on every exported field of t, embedded ones included, each name once. It adds the
// names to taken. example is the name in the advice of an error.
func checkFields(t reflect.Type, taken map[string]bool, example string) error {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct && name == "":
			if err := checkFields(f.Type, taken, example); err != nil {
				return err
			}
		case !f.IsExported() || name == "-": // no setting
		case name == "" || name != strings.ToLower(name) || strings.ContainsAny(name, " .-"):
			return fmt.Errorf("field %s needs a tag such as `toml:%q`, or `toml:\"-\"` if it is not a setting", f.Name, example)
		case taken[name]:
			return fmt.Errorf("field %s: the toml name %q is taken", f.Name, name)
		default:
			taken[name] = true
		}
	}
	return nil
}
