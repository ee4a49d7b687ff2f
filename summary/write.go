package summary

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"attnbudget/atomicfile"
)

const (
	summaryFile = "summary.json"
	tableFolder = "tables"
)

// tableName is how files in the folder of tables are called; nothing else there is touched.
var tableName = regexp.MustCompile(`^\d\d+-.*\.(md|csv)$`)

// Files are what Write writes: contents by path inside the run directory.
func (s *Summary) Files() (map[string][]byte, error) {
	j, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("summary: %w", err)
	}
	files := map[string][]byte{summaryFile: append(j, '\n')}
	for i := range s.Tables {
		t := &s.Tables[i]
		name := filepath.Join(tableFolder, fmt.Sprintf("%02d-%s", i+1, slug(t.Title)))
		var md, csv bytes.Buffer
		if err := errors.Join(t.WriteMarkdown(&md), t.WriteCSV(&csv)); err != nil {
			return nil, fmt.Errorf("table %q: %w", t.Title, err)
		}
		files[name+".md"], files[name+".csv"] = md.Bytes(), csv.Bytes()
	}
	return files, nil
}

// slug is a title in lower-case ASCII letters, digits and single hyphens.
func slug(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= 60 {
			break
		}
	}
	if s := strings.Trim(b.String(), "-"); s != "" {
		return s
	}
	return "table"
}

// Write stores summary.json and the tables in the run directory, each file as a whole or not at all, and removes
// tables of earlier summaries that no longer exist.
func Write(dir string, s *Summary) error {
	files, err := s.Files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, tableFolder), 0o755); err != nil {
		return fmt.Errorf("tables: %w", err)
	}
	for name, data := range files {
		if err := atomicfile.WriteBytes(filepath.Join(dir, name), data); err != nil {
			return err
		}
	}
	old, err := tableFiles(dir)
	if err != nil {
		return err
	}
	for _, name := range old {
		if _, current := files[name]; !current {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return fmt.Errorf("old table: %w", err)
			}
		}
	}
	return atomicfile.SyncFolder(filepath.Join(dir, tableFolder))
}

// tableFiles lists the tables on disk, by path inside the run directory.
func tableFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, tableFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		if tableName.MatchString(e.Name()) {
			out = append(out, filepath.Join(tableFolder, e.Name()))
		}
	}
	return out, err
}
