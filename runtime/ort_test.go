package runtime

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"onering/runtime/provision"
)

// TestSlots compares the slots of ort.h with the order of the functions in the
// header that the Go binding has.
func TestSlots(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "onnxruntime_c_api.h"))
	if err != nil {
		t.Fatal(err)
	}
	header := regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`).ReplaceAllString(string(text), "")
	_, body, ok := strings.Cut(header, "struct OrtApi {")
	if !ok {
		t.Fatal("the header has no struct OrtApi")
	}
	body, _, _ = strings.Cut(body, "\n};")
	slots := map[string]int{}
	member := regexp.MustCompile(`ORT_API2_STATUS\((\w+)|ORT_CLASS_RELEASE\((\w+)\)|\(\s*ORT_API_CALL\s*\*\s*(\w+)\s*\)|ORT_API_T\([^,]*,\s*(\w+)`)
	for i, m := range member.FindAllStringSubmatch(body, -1) {
		name := m[1] + m[3] + m[4]
		if m[2] != "" {
			name = "Release" + m[2]
		}
		slots[name] = i
	}
	ours, err := os.ReadFile("ort.h")
	if err != nil {
		t.Fatal(err)
	}
	used := regexp.MustCompile(`\tORT_(\w+) = (\d+),`).FindAllStringSubmatch(string(ours), -1)
	if len(used) < 30 {
		t.Fatalf("found only %d slots in ort.h", len(used))
	}
	for _, u := range used {
		got, _ := strconv.Atoi(u[2])
		if want, ok := slots[u[1]]; !ok || got != want {
			t.Errorf("ORT_%s = %d, the header has %d (found: %v)", u[1], got, want, ok)
		}
	}
	if want := "#define ORT_API_VERSION " + strconv.Itoa(provision.MinAPI); !strings.Contains(header, want) {
		t.Errorf("provision.MinAPI is %d, but the header of the binding differs", provision.MinAPI)
	}
}
