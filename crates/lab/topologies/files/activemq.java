import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.activemq.broker.BrokerPlugin;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.security.AuthenticationUser;
import org.apache.activemq.security.SimpleAuthenticationPlugin;

/** ActiveMQ Classic in memory, with AMQP at one address and one account: HOST:PORT USER, and a file with the password. */
class Classic {
    public static void main(String[] given) throws Exception {
        BrokerService broker = new BrokerService();
        broker.setBrokerName("classic");
        broker.setPersistent(false);
        broker.setUseJmx(false);
        broker.setUseShutdownHook(false);
        String password = Files.readString(Path.of(given[2])).trim();
        AuthenticationUser account = new AuthenticationUser(given[1], password, "everybody");
        broker.setPlugins(new BrokerPlugin[] {new SimpleAuthenticationPlugin(List.of(account))});
        broker.addConnector("amqp://" + given[0]);
        broker.start();
        broker.waitUntilStopped();
    }
}
