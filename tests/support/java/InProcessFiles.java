import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local files, with permissions and links looked up in this process.
 *
 * <p>Hadoop without its native library starts `chmod` and `readlink` for each file: a third of a stream's time.
 */
public class InProcessFiles extends LocalFileSystem {
    public InProcessFiles() {
        super(new Raw());
    }

    static class Raw extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            Files.setAttribute(pathToFile(path).toPath(), "unix:mode", (int) permission.toShort());
        }

        @Override
        public FileStatus getFileLinkStatus(Path path) throws IOException {
            return Files.isSymbolicLink(pathToFile(path).toPath()) ? super.getFileLinkStatus(path) : getFileStatus(path);
        }
    }

    /** The same for a FileContext, by which Spark writes checkpoints. */
    public static class Context extends ChecksumFs {
        public Context(URI uri, Configuration conf) throws IOException, URISyntaxException {
            super(new RawContext(conf));
        }
    }

    static class RawContext extends DelegateToFileSystem {
        RawContext(Configuration conf) throws IOException, URISyntaxException {
            super(FsConstants.LOCAL_FS_URI, new Raw(), conf, "file", false);
        }

        @Override
        public int getUriDefaultPort() {
            return -1;
        }

        @Override
        public boolean isValidName(String name) {
            return true;
        }
    }
}
