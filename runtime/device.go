package runtime

// #include "ort.h"
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"onering/models"
	hostkernels "onering/runtime/kernels/host"
	"onering/runtime/provision"
)

// A device is what Sessions run on: a provider's device, or with a nil provider auto.
type device struct {
	provider Provider
	number   int
}

// parseDevice reads "cpu" (also ""), "auto", and a provider's name with or without the number of a device that may
// exist, such as "cuda:1"; without one it is 0.
func parseDevice(s string) (device, error) {
	if s == "auto" {
		return device{}, nil // without a provider: resolveAuto chooses
	}
	if s == "" || s == "cpu" {
		return device{provider: cpu{}}, nil
	}
	name, text, numbered := strings.Cut(s, ":")
	i := slices.IndexFunc(providers, func(p Provider) bool { return p.Name() == name })
	n, err := strconv.Atoi(text)
	if !numbered {
		n, err = 0, nil
	}
	// Atoi accepts signs and leading zeros, Itoa writes none.
	if i < 0 || err != nil || numbered && strconv.Itoa(n) != text || n < 0 || !providers[i].Has(n) {
		return device{}, fmt.Errorf("runtime: device %q: want %s", s, Devices())
	}
	return device{providers[i], n}, nil
}

// Devices lists the possible names of devices for messages.
func Devices() string {
	text := "cpu, "
	for _, p := range providers {
		if names := p.Names(); names != "" {
			text += names + ", "
		}
	}
	return text + "or auto"
}

// ProviderOf returns the provider of a device, as Options.Device names it. It is nil for
// auto, and for an unknown device.
func ProviderOf(device string) Provider {
	d, _ := parseDevice(device)
	return d.provider
}

// Room returns Provider.Room of a device, as Options.Device names it.
func Room(device string) (model string, free int64) {
	if d, err := parseDevice(device); err == nil && d.provider != nil {
		return d.provider.Room(d.number)
	}
	return "", 0
}

// IsDevice reports whether a text names one of Devices.
func IsDevice(text string) bool { return text == "auto" || text != "" && ProviderOf(text) != nil }

func (d device) String() string {
	switch d.provider {
	case nil:
		return "auto"
	case cpu{}:
		return "cpu"
	}
	return fmt.Sprintf("%s:%d", d.provider.Name(), d.number)
}

// choose decides what "auto" means and finds the library for the device. If auto means
// the CPU, Notice receives the reason in one line.
func choose(ctx context.Context, o Options, d device) (_ device, at provision.Location, err error) {
	d, err = o.resolve(d, func(d device) (err error) { at, err = d.find(ctx, o.Options); return err })
	return d, at, err
}

// resolve decides what "auto" means, if d is that, and checks that the device is usable.
func (o Options) resolve(d device, usable func(device) error) (device, error) {
	if d.provider != nil {
		return d, usable(d)
	}
	d, why, err := resolveAuto(usable)
	if o.Notice != nil && why != "" {
		o.Notice("running on the CPU: " + why)
	}
	return d, err
}

// resolveAuto decides what "auto" means: device 0 of the first provider that is present and whose device is usable, or
// the CPU. why is the reason for the CPU in one line: from the first provider, and from others that are present.
func resolveAuto(usable func(device) error) (d device, why string, err error) {
	var texts []string
	for i, p := range providers {
		d := device{provider: p}
		absent := p.Present()
		err := absent
		if absent == nil {
			err = usable(d)
		}
		if err == nil {
			return d, "", nil
		}
		if i == 0 || absent == nil {
			text, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "provision: "), "\n")
			texts = append(texts, text)
		}
	}
	d = device{provider: cpu{}}
	return d, strings.Join(texts, "; "), usable(d) // usable of choose also finds the library, for the CPU too
}

// find finds the library of a device and checks that the device can be used. It fetches a
// library only if nothing else is missing.
func (d device) find(ctx context.Context, o provision.Options) (provision.Location, error) {
	at, err := provision.Look(o, d.provider.Library())
	if err == nil && at.Path == "" && d.check(ctx, "", ignoreLibrary) == nil { // otherwise the check below says what is missing
		at, err = provision.Find(ctx, o, d.provider.Library())
	}
	if err == nil && at.Path != "" {
		err = at.Verify()
	}
	if err != nil {
		return provision.Location{}, err
	}
	return at, d.check(ctx, at.Path, reportLibrary)
}

// Values of the parameter ignore of Provider.Report: whether the report leaves out that the library is missing, since
// it will be downloaded or the user knows it.
const reportLibrary, ignoreLibrary = false, true

// check returns a *provision.UnusableGPUError if something keeps a library from using the
// device; see Provider.Report.
func (d device) check(ctx context.Context, library string, ignore bool) error {
	if missing := d.provider.Report(ctx, library, d.number, ignore).Missing; len(missing) > 0 {
		return &provision.UnusableGPUError{Device: d.String(), Missing: missing}
	}
	return nil
}

// Foresee returns the device that a run will use: o.Device, with auto resolved as Open would, and if that is the CPU
// the reason. It downloads nothing: it assumes that a missing library can be downloaded.
func (o Options) Foresee(ctx context.Context) (device, reason string, err error) {
	d, reason, err := o.foresee(ctx)
	return d.String(), reason, err
}

// foresee is Foresee with the device as a value.
func (o Options) foresee(ctx context.Context) (device, string, error) {
	d, err := parseDevice(o.Device)
	if err != nil || d.provider != nil {
		return d, "", err
	}
	d, reason, _ := resolveAuto(func(d device) error {
		at, err := provision.Look(o.Options, d.provider.Library())
		if err != nil {
			return err
		}
		return d.check(ctx, at.Path, at.Path == "" && o.Fetches())
	})
	return d, reason, nil
}

// ForRank returns the device of one of several ranks on a host, if the run does not name one by its number.
func ForRank(device string, local int) string {
	for _, p := range providers {
		if n, ok := p.ForRank(local, device == p.Name()); ok && (device == p.Name() || device == "auto") {
			return fmt.Sprintf("%s:%d", p.Name(), n)
		}
	}
	return device
}

// A Diagnosis says what onering finds on this machine.
type Diagnosis struct {
	Program any `json:"onering,omitempty"` // which program says so
	provision.Report
	Providers []Report `json:"-"`
}

// MarshalJSON implements json.Marshaler: each provider has its name.
func (d Diagnosis) MarshalJSON() ([]byte, error) {
	type plain Diagnosis
	line, err := json.Marshal(plain(d))
	for _, p := range d.Providers {
		facts := map[string]any{"missing": p.Missing}
		maps.Copy(facts, p.Facts)
		text, failed := json.Marshal(map[string]any{p.Name: facts})
		if err = errors.Join(err, failed); err == nil {
			line = append(append(line[:len(line)-1], ','), text[1:]...)
		}
	}
	return line, err
}

// Diagnose says what onering finds on this machine. It loads the library that
// Open would load with the same options, so a later Open is bound to it, but it
// fetches none. What the device of the options lacks is a problem; what other devices lack is only listed.
func (o Options) Diagnose(ctx context.Context) (Diagnosis, error) {
	d, reason, err := o.foresee(ctx) // the device that a run would use, and if auto became the CPU, why
	if err != nil {
		return Diagnosis{}, err
	}
	machine, usable := provision.Diagnose(ctx, o.Options, d.provider.Library())
	r := Diagnosis{Report: machine}
	if err := hostkernels.Choose(); err != nil {
		r.Problem(err)
	}
	r.Kernels = hostkernels.Kind()
	r.Device, r.Threads = provision.DeviceReport{Name: d.String(), Reason: reason}, o.threads()
	library := ""
	if r.Library != nil {
		library = r.Library.Path
		if len(r.Problems) == 0 { // otherwise it may have changed
			if err := describe(ctx, r.Library); err != nil { // loads it
				r.Problem(err)
			}
		}
	}
	for _, p := range providers {
		asked, number := p == d.provider, 0
		if asked {
			number = d.number
		}
		of := p.Report(ctx, library, number, !usable) // why there is no library is a problem already
		of.Name, of.Asked = p.Name(), asked
		if asked {
			if len(of.Missing) == 0 && len(r.Problems) == 0 {
				of.Missing = append(of.Missing, tryToRun(ctx, library, d)...)
			}
			r.Problems = append(r.Problems, of.Missing...)
		}
		r.Providers = append(r.Providers, of)
	}
	return r, nil
}

// describe asks a library for its version and its execution providers.
func describe(ctx context.Context, r *provision.LibraryReport) error {
	e, err := Open(ctx, Options{Options: provision.Options{Library: r.Path}})
	if err != nil {
		return err
	}
	r.Version = e.Version()
	r.Providers, err = e.executionProviders()
	return errors.Join(err, e.Close())
}

// tryToRun opens a library on a device and makes a session's options, and returns in sentences why that fails.
func tryToRun(ctx context.Context, library string, d device) []string {
	e, err := Open(ctx, Options{Options: provision.Options{Library: library}, Device: d.String()})
	if err == nil {
		var o *C.OrtSessionOptions
		if o, err = e.sessionOptions(models.Program{}); err == nil {
			C.onering_release_options(o)
		}
		err = errors.Join(err, e.Close())
	}
	if err == nil {
		return nil
	}
	if unusable, ok := errors.AsType[*provision.UnusableGPUError](err); ok {
		return unusable.Missing
	}
	return []string{fmt.Sprintf("ONNX Runtime does not run on it: %v", err)}
}
