// SPDX-License-Identifier: Apache-2.0
// Sends and receives files with Aeron: one publication, a media driver in each process.
//
//   BenchAeron send KEY=VALUE...   paths on standard input, one per line
//   BenchAeron recv KEY=VALUE...
//
// channel=URI, directory=DIR (of the driver, and for received files). A sender waits until its flow
// control has all receivers. It sends to destination=URI if the channel does not name a destination;
// join=GROUP and interface=IP make a receiver's host a member of a group on which Aeron listens
// as for unicast, so that it answers to the sender's own address.
// A message is a file's number and an offset, then data; offset -1: the file's size and name.

import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.DataPacketDispatcher;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.driver.media.ReceiveChannelEndpoint;
import io.aeron.driver.media.UdpChannel;
import io.aeron.logbuffer.BufferClaim;
import io.aeron.logbuffer.Header;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.AtomicCounter;

public final class BenchAeron {
    private static final int STREAM = 1001;
    private static final int HEAD_BYTES = 12; // number, offset
    private static final int FRAGMENTS = 64;
    private static final long NAME = -1;

    private static volatile boolean ended;

    private static IdleStrategy idle() {
        return new BackoffIdleStrategy(10, 5, 1_000, 1_000_000);
    }

    public static void main(final String[] arguments) throws IOException {
        final Map<String, String> words = new HashMap<>();
        for (int i = 1; i < arguments.length; i++) {
            final String[] pair = arguments[i].split("=", 2);
            words.put(pair[0], pair.length == 2 ? pair[1] : "");
        }
        Runtime.getRuntime().addShutdownHook(new Thread(BenchAeron::waitForEnd));
        final MediaDriver.Context driver =
            new MediaDriver.Context()
                .aeronDirectoryName(words.get("driver"))
                .threadingMode(ThreadingMode.SHARED)
                .sharedIdleStrategy(idle())
                .dirDeleteOnStart(true)
                .dirDeleteOnShutdown(true)
                .termBufferSparseFile(true)
                .socketMulticastTtl(1);
        if (words.containsKey("join")) {
            final InetAddress group = InetAddress.getByName(words.get("join"));
            final NetworkInterface nic =
                NetworkInterface.getByInetAddress(InetAddress.getByName(words.get("interface")));
            driver.receiveChannelEndpointSupplier(
                (channel, dispatcher, status, context) ->
                    new Member(channel, dispatcher, status, context, group, nic));
        }
        try (MediaDriver ignored = MediaDriver.launch(driver);
            Aeron aeron =
                Aeron.connect(new Aeron.Context().aeronDirectoryName(words.get("driver")))) {
            if (arguments[0].equals("send")) {
                send(aeron, words);
            } else {
                receive(aeron, words);
            }
            count(aeron);
        }
        done.countDown();
    }

    /** A receiving end as if for unicast whose socket is a member of a group. */
    private static final class Member extends ReceiveChannelEndpoint {
        private final InetAddress group;
        private final NetworkInterface nic;

        private Member(
            final UdpChannel channel, final DataPacketDispatcher dispatcher,
            final AtomicCounter status, final MediaDriver.Context context,
            final InetAddress group, final NetworkInterface nic) {
            super(channel, dispatcher, status, context);
            this.group = group;
            this.nic = nic;
        }

        /** Java's sockets receive only the groups that they themselves have joined. */
        @Override
        public void openDatagramChannel(final AtomicCounter status) {
            super.openDatagramChannel(status);
            try {
                receiveDatagramChannel.join(group, nic);
            } catch (final IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    private static final java.util.concurrent.CountDownLatch done =
        new java.util.concurrent.CountDownLatch(1);

    private static void waitForEnd() {
        ended = true;
        try {
            done.await(3, java.util.concurrent.TimeUnit.SECONDS);
        } catch (final InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static void count(final Aeron aeron) {
        final StringBuilder text = new StringBuilder("aeron=1");
        aeron.countersReader().forEach((value, id, label) -> {
            final String name = label.toLowerCase().replaceAll("[^a-z0-9]+", "_");
            if (name.matches("(naks?|status|retransmits?|loss)_.*") && name.length() < 60) {
                text.append(' ').append(name).append('=').append(value);
            }
        });
        System.out.println(text);
        System.out.flush();
    }

    private static void send(final Aeron aeron, final Map<String, String> words)
        throws IOException {
        try (ExclusivePublication out =
            aeron.addExclusivePublication(words.get("channel"), STREAM)) {
            if (words.containsKey("destination")) {
                out.addDestination(words.get("destination"));
            }
            final IdleStrategy idle = idle();
            while (!out.isConnected() && !ended) {
                idle.idle();
            }
            if (ended) {
                return;
            }
            System.err.println("BenchAeron: receivers connected");
            final BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            int number = 0;
            for (String line = in.readLine(); line != null && !ended; line = in.readLine()) {
                sendFile(out, Path.of(line), number++, idle);
            }
        }
    }

    private static void sendFile(
        final Publication out, final Path path, final int number, final IdleStrategy idle)
        throws IOException {
        final byte[] name = path.getFileName().toString().getBytes(StandardCharsets.UTF_8);
        try (FileChannel file = FileChannel.open(path)) {
            final long size = file.size();
            final BufferClaim claim = new BufferClaim();
            claim(out, HEAD_BYTES + 8 + name.length, claim, idle);
            putHead(claim, number, NAME);
            claim.buffer().putLong(claim.offset() + HEAD_BYTES, size);
            claim.buffer().putBytes(claim.offset() + HEAD_BYTES + 8, name);
            claim.commit();
            if (size == 0) {
                return;
            }
            final MappedByteBuffer mapped = file.map(FileChannel.MapMode.READ_ONLY, 0, size);
            final UnsafeBuffer data = new UnsafeBuffer(mapped);
            final int room = out.maxPayloadLength() - HEAD_BYTES;
            for (long at = 0; at < size && !ended; at += room) {
                final int length = (int) Math.min(room, size - at);
                claim(out, HEAD_BYTES + length, claim, idle);
                putHead(claim, number, at);
                claim.buffer().putBytes(claim.offset() + HEAD_BYTES, data, (int) at, length);
                claim.commit();
            }
        }
    }

    private static void putHead(final BufferClaim claim, final int number, final long at) {
        claim.buffer().putInt(claim.offset(), number);
        claim.buffer().putLong(claim.offset() + 4, at);
    }

    private static void claim(
        final Publication out, final int length, final BufferClaim claim, final IdleStrategy idle)
        throws IOException {
        idle.reset();
        while (!ended) {
            final long result = ((ExclusivePublication) out).tryClaim(length, claim);
            if (result > 0) {
                return;
            }
            if (result == Publication.CLOSED || result == Publication.MAX_POSITION_EXCEEDED) {
                throw new IOException("the publication is over: " + result);
            }
            idle.idle();
        }
        throw new IOException("ended");
    }

    /** A file that is being received. */
    private static final class Incoming {
        private final Path path;
        private final FileChannel file;
        private final MappedByteBuffer data;
        private long left;

        private Incoming(final Path path, final long size) throws IOException {
            this.path = path;
            file = FileChannel.open(
                Path.of(path + ".part"),
                StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE);
            data = size == 0 ? null : file.map(FileChannel.MapMode.READ_WRITE, 0, size);
            left = size;
        }

        private void finish() throws IOException {
            file.close();
            Files.move(Path.of(path + ".part"), path);
        }
    }

    private static void receive(final Aeron aeron, final Map<String, String> words)
        throws IOException {
        final Path inbox = Path.of(words.get("directory"));
        final Map<Integer, Incoming> files = new HashMap<>();
        try (Subscription in = aeron.addSubscription(words.get("channel"), STREAM)) {
            final IdleStrategy idle = idle();
            while (!ended) {
                idle.idle(in.poll((b, at, n, h) -> take(inbox, files, b, at, n, h), FRAGMENTS));
            }
        }
    }

    private static void take(
        final Path inbox, final Map<Integer, Incoming> files, final DirectBuffer buffer,
        final int at, final int length, final Header header) {
        try {
            final int number = buffer.getInt(at);
            final long offset = buffer.getLong(at + 4);
            final int bytes = length - HEAD_BYTES;
            if (offset == NAME) {
                final byte[] name = new byte[bytes - 8];
                buffer.getBytes(at + HEAD_BYTES + 8, name);
                final Path leaf = Path.of(new String(name, StandardCharsets.UTF_8)).getFileName();
                files.put(
                    number,
                    new Incoming(inbox.resolve(leaf), buffer.getLong(at + HEAD_BYTES)));
            } else {
                final Incoming file = files.get(number);
                if (file == null) {
                    return; // part of a file that began before this receiver joined
                }
                buffer.getBytes(at + HEAD_BYTES, file.data, (int) offset, bytes);
                file.left -= bytes;
            }
            final Incoming file = files.get(number);
            if (file.left == 0) {
                file.finish();
                files.remove(number);
            }
        } catch (final IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
