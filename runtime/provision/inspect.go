package provision

import (
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"fmt"
	"os"
	"slices"
)

// inspect returns an error if the file at path cannot be ONNX Runtime for a system. It only reads the file's headers:
// loading a library runs its code, and loading a file that is cut short ends the process.
func inspect(path, goos, goarch string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%q is not a file", path)
	}
	switch goos {
	case "darwin":
		return inspectMachO(path, goarch)
	case "windows":
		return inspectPE(path, goarch)
	}
	return inspectELF(path, goarch, uint64(info.Size()))
}

// inspectELF is inspect for Linux: it checks the machine, the length and the symbols of a file of size bytes.
func inspectELF(path, goarch string, size uint64) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%q is not a shared library (%w)", path, err)
	}
	defer f.Close()
	want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[goarch]
	if f.Machine != want {
		return wrongArch(path, f.Machine, goarch)
	}
	if f.Type != elf.ET_DYN {
		return fmt.Errorf("%q is not a shared library but of type %s", path, f.Type)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && (p.Off > size || p.Filesz > size-p.Off) {
			return fmt.Errorf("%q is cut short: it has %d bytes of at least %d", path, size, p.Off+p.Filesz)
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("%q has no readable symbols (%w)", path, err)
	}
	if !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "OrtGetApiBase" && s.Section != elf.SHN_UNDEF }) {
		return fmt.Errorf("%q is a shared library but not ONNX Runtime's: it does not export OrtGetApiBase", path)
	}
	return nil
}

// inspectMachO is inspect for macOS: it checks the machine, or that a universal binary has it.
func inspectMachO(path, goarch string) error {
	want := map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}[goarch]
	if fat, err := macho.OpenFat(path); err == nil {
		defer fat.Close()
		for _, a := range fat.Arches {
			if a.Cpu == want {
				return nil
			}
		}
		return wrongArch(path, "another universal binary", goarch)
	}
	f, err := macho.Open(path)
	if err != nil {
		return fmt.Errorf("%q is not a shared library (%w)", path, err)
	}
	defer f.Close()
	if f.Cpu != want {
		return wrongArch(path, f.Cpu, goarch)
	}
	return nil
}

// inspectPE is inspect for Windows: it checks the machine.
func inspectPE(path, goarch string) error {
	f, err := pe.Open(path)
	if err != nil {
		return fmt.Errorf("%q is not a shared library (%w)", path, err)
	}
	defer f.Close()
	want := map[string]uint16{"amd64": pe.IMAGE_FILE_MACHINE_AMD64, "arm64": pe.IMAGE_FILE_MACHINE_ARM64}[goarch]
	if f.Machine != want {
		return wrongArch(path, fmt.Sprintf("machine %#x", f.Machine), goarch)
	}
	return nil
}

func wrongArch(path string, is any, goarch string) error {
	return fmt.Errorf("%q is built for %v, but this program for %s", path, is, goarch)
}
